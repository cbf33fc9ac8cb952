"""The entry point: what holds for every door."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from app.__main__ import DOORS, main


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


def test_ctrl_c_ends_a_door_quietly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.doors.detect.run", interrupted)
    assert main(["--profile-dir", str(tmp_path), "detect"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("module", ["app.__main__", *(f"app.doors.{door}" for door in DOORS), "engine.contract.wire"])
def test_no_torch_and_no_qt_without_a_window(module: str) -> None:
    heavy = "{'torch', 'transformers', 'safetensors', 'numpy', 'PySide6'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
