"""The entry point: what holds for every door."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.__main__ import main
from app.doors.entry import DOORS


def test_a_command_that_makes_no_sense_is_a_typed_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile-dir", str(tmp_path), "fly", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "usage"
    assert "fly" in error["sentence"]


def test_an_option_value_that_is_named_like_a_door_opens_the_right_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "chat"
    assert main(["--profile-dir", str(folder), "orphans", "--processes", "detect"]) == 2
    assert "process table" in capsys.readouterr().err


def test_a_fault_of_splitpin_is_one_sentence_and_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(options: object) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("app.doors.detect.run", broken)
    assert main(["--profile-dir", str(tmp_path), "detect"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "division by zero" in err
    assert "launcher.log" in err
    assert "Traceback" in (tmp_path / "logs" / "launcher.log").read_text("utf-8")


def _as_program(before: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`python -m app`, after some preparation in the same process."""
    code = f"import runpy, sys; sys.argv[1:] = {list(words)!r}; {before}; runpy.run_module('app', run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_the_program_too_keeps_tracebacks_in_its_log(tmp_path: Path) -> None:
    done = _as_program(
        "import app.doors.detect; app.doors.detect.run = lambda options: 1 / 0",
        "--profile-dir",
        str(tmp_path),
        "detect",
    )
    assert done.returncode == 1
    assert "division by zero" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in (tmp_path / "logs" / "launcher.log").read_text("utf-8")


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C reaches a child of a test on POSIX only")
def test_ctrl_c_while_modules_load_ends_the_program_without_a_word(tmp_path: Path) -> None:
    done = _as_program(
        "import os, signal; "
        "finder = type('Finder', (), {'find_spec': "
        "lambda self, name, *_: os.kill(os.getpid(), signal.SIGINT) if name == 'pydantic' else None}); "
        "sys.meta_path.insert(0, finder())",
        "--profile-dir",
        str(tmp_path),
        "detect",
    )
    assert done.returncode == -signal.SIGINT
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words",
    [
        ["--profile-dir", "", "detect"],
        ["detect", "--machine", ""],
        ["plan", "--model", ""],
        ["plan", "--model", "x", "--context", "-1"],
        ["plan", "--model", "x", "--prefill-chunk", "9" * 400],
        ["plan", "--model", "x", "--vram-layers", "1000000001"],
        ["plan", "--model", "x", "--pin-cap", "9" * 400],
        ["plan", "--model", "x", "--simulate-gpu", f"vram={'9' * 400}GiB"],
        ["plan", "--model", "x", "--simulate-gpu", "vram=1GiB,vram=2GiB"],
        ["chat", "--model", "x", "--prompt", "hello", "--max-tokens", "0"],
        ["chat", "--model", "x", "--prompt", "hello", "--temperature", "nan"],
        ["chat", "--model", "x", "--prompt", "hello", "--temperature", "-1"],
        ["chat", "--model", "x", "--prompt", "not text: \udcff"],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_absurd_values_are_refused_before_anything_is_read(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"


@pytest.mark.skipif(os.name == "nt", reason="~name means another folder there")
def test_a_home_folder_of_nobody_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile-dir", "~nobody-of-this-name", "detect"]) == 2
    assert "names no home folder" in capsys.readouterr().err


@pytest.mark.parametrize("door", ["detect", "plan", "orphans", "chat", "apply", "selfcheck"])
def test_every_door_takes_a_profile_behind_its_name_too(door: str, tmp_path: Path) -> None:
    assert main([door, "--profile-dir", str(tmp_path), "--no-such-option"]) == 2
    assert main([door, "--profile-dir", str(tmp_path), "--help"]) == 0


def test_ctrl_c_ends_a_door_quietly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.doors.detect.run", interrupted)
    assert main(["--profile-dir", str(tmp_path), "detect"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "module", ["app.doors.entry", *(f"app.doors.{door}" for door in DOORS), "engine.contract.wire"]
)
def test_no_torch_and_no_qt_without_a_window(module: str) -> None:
    heavy = "{'torch', 'transformers', 'safetensors', 'numpy', 'PySide6'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
