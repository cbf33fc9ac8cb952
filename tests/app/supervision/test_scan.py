"""Scanning with the ledger, and the refusal to start beside a left-over engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from typing_extensions import override

from app.orphans.classify import classify
from app.orphans.verdicts import Verdicts
from app.supervision.ledger import RunLedger
from app.supervision.scan import Scanner, refuse_start
from engine.contract.errors import OrphanHoldsMemoryError
from engine.contract.processes import ProcessIdentity, ProcessRow, ProcessTable, RunEntry
from engine.system.protocols import ProcessReader

TABLES = Path(__file__).parents[2] / "processes"


@dataclass(frozen=True)
class Table(ProcessReader):
    """A machine with these processes."""

    rows: tuple[ProcessRow, ...]

    @override
    def read(self, engine_dirs: Sequence[str], ledger: Sequence[RunEntry]) -> ProcessTable:
        return ProcessTable(now=5000, engine_dirs=tuple(engine_dirs), ledger=tuple(ledger), processes=self.rows)


def _verdicts(name: str) -> Verdicts:
    return classify(ProcessTable.model_validate_json((TABLES / f"{name}.json").read_bytes()))


def _entry(run_id: str, engine: int, supervisor: int) -> RunEntry:
    return RunEntry(
        run_id=run_id,
        engine=ProcessIdentity(pid=engine, create_time=1000),
        supervisor=ProcessIdentity(pid=supervisor, create_time=900),
    )


def _row(pid: int, ppid: int, start: float) -> ProcessRow:
    return ProcessRow(pid=pid, ppid=ppid, create_time=start, exe="C:\\Python\\python.exe", rss_bytes=1)


def test_a_scan_forgets_runs_of_which_nothing_is_left_and_keeps_the_others(tmp_path: Path) -> None:
    runs = RunLedger(tmp_path)
    runs.record(_entry("gone", 10, 9))
    runs.record(_entry("left over", 20, 19))
    runs.record(_entry("running", 30, 29))
    runs.record(_entry("being stopped by another launcher", 40, 39))
    rows = (_row(20, 19, 1000), _row(29, 1, 900), _row(30, 29, 1000), _row(39, 1, 900))
    verdicts = Scanner(runs, Table(rows)).scan()
    assert [orphan.pids for orphan in verdicts.orphans] == [(20,)]
    assert {entry.run_id for entry in runs.read()} == {"left over", "running", "being stopped by another launcher"}


def test_a_proven_left_over_refuses_the_start_with_its_bytes() -> None:
    with pytest.raises(OrphanHoldsMemoryError) as caught:
        refuse_start(_verdicts("T13"))
    assert "PID 4188" in caught.value.sentence
    assert "14.3 GiB of VRAM and 28.0 GiB of RAM" in caught.value.sentence
    assert "--end" in caught.value.fix


@pytest.mark.parametrize("name", ["T14", "T15-parent-unreadable", "windows-foreign-spawn-child"])
def test_what_is_not_proven_does_not_refuse_a_start(name: str) -> None:
    refuse_start(_verdicts(name))
