"""The run ledger survives what a crash, a full disk or another hand does to it."""

import logging
from pathlib import Path

import pytest

from app.supervision.ledger import RunLedger
from engine.contract.processes import ProcessIdentity, RunEntry


def _entry(run_id: str, pid: int = 10) -> RunEntry:
    return RunEntry(run_id=run_id, engine=ProcessIdentity(pid=pid, create_time=1000.25))


def test_what_is_recorded_is_read_and_what_is_removed_is_gone(tmp_path: Path) -> None:
    runs = RunLedger(tmp_path / "runs")
    assert runs.read() == ()
    assert runs.record(_entry("a"))
    assert runs.record(_entry("b", 11))
    assert runs.record(_entry("a", 12))
    assert {(entry.run_id, entry.engine.pid) for entry in runs.read()} == {("a", 12), ("b", 11)}
    runs.remove("a")
    runs.remove("a")
    assert [entry.run_id for entry in runs.read()] == ["b"]


def test_a_corrupt_entry_is_put_aside_and_the_others_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runs = RunLedger(tmp_path)
    runs.record(_entry("good"))
    (tmp_path / "cut.json").write_text('{"run_id": "cut", "eng', "utf-8")
    (tmp_path / "binary.json").write_bytes(b"\xff\x00\xfe")
    with caplog.at_level(logging.WARNING):
        assert [entry.run_id for entry in runs.read()] == ["good"]
        assert [entry.run_id for entry in runs.read()] == ["good"]
    assert len(caplog.records) == 2, "each is reported once"
    assert {file.name for file in tmp_path.iterdir()} == {"good.json", "cut.broken-1.json", "binary.broken-1.json"}


def test_a_full_disk_keeps_the_old_entry_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = RunLedger(tmp_path)
    runs.record(_entry("a", 10))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.files.os.fsync", full)
    with caplog.at_level(logging.WARNING):
        assert not runs.record(_entry("a", 99))
    assert "No space left" in caplog.text
    assert [entry.engine.pid for entry in runs.read()] == [10]
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"], "no half-written file stays"


def test_plans_and_logs_of_old_runs_go_but_never_of_a_run_on_record(tmp_path: Path) -> None:
    runs = RunLedger(tmp_path)
    names = [f"20260101-0000{number:02}-abcdef" for number in range(5)]
    for name in [*names, "my own folder"]:
        runs.run_dir(name).mkdir()
        (runs.run_dir(name) / "engine.log").write_text("line", "utf-8")
    runs.record(_entry(names[0]))
    runs.forget_old_folders(keep=2)
    assert {path.name for path in tmp_path.glob("*/") if path.is_dir()} == {names[0], *names[3:], "my own folder"}
