"""`python -m app selfcheck`."""

import json
import sys
from pathlib import Path

import pytest

from app.__main__ import main

FAKE = f'"{sys.executable}" -m tests.support.fake_engine'


def test_parts_versions_and_a_dry_start_of_the_engine_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--profile-dir", str(tmp_path), "selfcheck", "--engine", FAKE, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert Path(document["paths"]["program"], "app", "__main__.py").is_file()
    assert document["paths"]["profile"] == str(tmp_path)
    assert document["versions"]["torch"] is not None
    assert document["engine"]["version"] == "fake"
    assert not (tmp_path / "runs").exists(), "a dry start leaves no run in the profile"


def test_people_get_it_as_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile-dir", str(tmp_path), "selfcheck", "--engine", FAKE]) == 0
    assert "said hello and stopped" in capsys.readouterr().out


def test_an_engine_that_does_not_greet_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f'"{sys.executable}" -c "import sys; sys.exit(\'no engine here\')"'
    assert main(["--profile-dir", str(tmp_path), "selfcheck", "--engine", command, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["kind"] == "engine_stopped"
    assert "no engine here" in error["numbers"]["log_tail"]


@pytest.mark.slow
def test_the_real_engine_greets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile-dir", str(tmp_path), "selfcheck", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"]["wire"] == 1
