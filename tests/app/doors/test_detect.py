"""`python -m app detect`."""

import json
from pathlib import Path

import pytest

from app.__main__ import main
from engine.contract.facts import HardwareFacts


def test_this_machine_is_told_with_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile-dir", str(tmp_path), "detect", "--json"]) == 0
    facts = HardwareFacts.model_validate_json(capsys.readouterr().out)
    assert facts.ram_total.value is not None and facts.ram_total.source is not None
    assert not facts.recorded


def test_a_recorded_machine_is_read_back_as_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "facts.json"
    file.write_text('{"label": "a PC", "os": "windows", "ram_total": 68719476736}', "utf-8")
    assert main(["--profile-dir", str(tmp_path), "detect", "--machine", str(file), "--json"]) == 0
    facts = HardwareFacts.model_validate_json(capsys.readouterr().out)
    assert (facts.label, facts.ram_total.value, facts.recorded) == ("a PC", 64 << 30, True)
    assert main(["--profile-dir", str(tmp_path), "--machine", str(file), "detect"]) == 0
    assert "64.0 GiB" in capsys.readouterr().out


def test_a_file_that_is_no_machine_is_refused_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--profile-dir", str(tmp_path), "detect", "--machine", str(tmp_path / "absent.json")]
    assert main([*command, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "recorded_file"
    assert error["fix"]
    assert main(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is not a recorded machine" in captured.err
