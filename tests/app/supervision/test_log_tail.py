"""The engine's log on disk and in memory."""

import io
from pathlib import Path

import pytest

from app.supervision import log_tail
from app.supervision.log_tail import KEPT_LINES, LogTail


def _drain(tail: LogTail, text: bytes) -> None:
    tail.drain(io.BytesIO(text))


def test_lines_are_on_disk_in_memory_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    tail = LogTail(tmp_path / "engine.log", told.append)
    _drain(tail, "eins\r\nzwei äöü\n\xff".encode() + b"\xff\n")
    assert told == list(tail.lines) == ["eins", "zwei äöü", "ÿ\N{REPLACEMENT CHARACTER}"]
    assert (tmp_path / "engine.log").read_text("utf-8").splitlines() == told


def test_only_the_last_lines_stay_in_memory(tmp_path: Path) -> None:
    tail = LogTail(tmp_path / "engine.log", lambda line: None)
    _drain(tail, b"".join(b"%d\n" % number for number in range(KEPT_LINES + 5)))
    assert tail.lines[0] == "5" and tail.lines[-1] == str(KEPT_LINES + 4)


def test_a_library_that_repeats_itself_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "MOST_BYTES", 1000)
    tail = LogTail(tmp_path / "engine.log", lambda line: None)
    _drain(tail, b"".join(b"line %04d\n" % number for number in range(500)))
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["engine-earlier.log", "engine.log"]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert (tmp_path / "engine.log").read_text("utf-8").endswith("line 0499\n"), "the newest lines are kept"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk that is always there")
def test_a_full_disk_does_not_stop_the_draining(tmp_path: Path) -> None:
    (tmp_path / "engine.log").symlink_to("/dev/full")
    tail = LogTail(tmp_path / "engine.log", lambda line: None)
    _drain(tail, b"one\ntwo\n")
    assert tail.lines == ("one", "(the log file could not be written: No space left on device)", "two")
