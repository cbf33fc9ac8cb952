"""The launcher's log file."""

import logging
from pathlib import Path

import pytest

from app.logs import LOG_NAME, logging_to


def test_records_of_the_launcher_are_written_and_the_file_is_let_go(tmp_path: Path) -> None:
    with logging_to(tmp_path / "logs") as file:
        assert file is not None
        logging.getLogger("app.somewhere").info("engine started")
    logging.getLogger("app.somewhere").info("after the end")
    text = file.read_text("utf-8")
    assert "INFO app.somewhere: engine started" in text
    assert "after the end" not in text


def test_a_folder_that_cannot_be_made_does_not_stop_the_program(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file", "utf-8")
    with logging_to(tmp_path / "logs") as file:
        assert file is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk that is always there")
def test_a_full_disk_loses_records_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / LOG_NAME).symlink_to("/dev/full")
    with logging_to(tmp_path):
        logging.getLogger("app.somewhere").info("engine started")
    assert capsys.readouterr().err == ""
