"""When is looked for left-over engines, and how the end of one is told."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from pytestqt.qtbot import QtBot
from typing_extensions import override

from app.core.session import ProcessEnded, StartRequested
from app.link.background import Background
from app.link.orphan_watch import OrphanWatch
from app.link.store import SessionStore
from app.orphans.classify import classify
from app.orphans.sweep import EndReport
from app.orphans.verdicts import Orphan, Verdicts
from engine.contract.errors import Problem, SplitpinError
from engine.contract.processes import ProcessTable
from tests.support.tiny_plan import tiny_plan

TABLE = Path(__file__).parents[2] / "processes" / "T13.json"
FOUND = classify(ProcessTable.model_validate_json(TABLE.read_bytes()))
REPORT = EndReport(
    ended=(4188,), kept={}, vram_back_bytes=1, ram_back_bytes=1, elapsed_s=0.8, settled=True, sentence="Ended."
)


class MemoryAtOnce:
    """Memory that is back as soon as the process is gone."""

    def wait_for(self, give_up: Callable[[], bool]) -> None:
        """Return at once."""


class MemoryNeverBack(MemoryAtOnce):
    """Memory that a driver holds on to."""

    def __init__(self) -> None:
        self.waited = threading.Event()

    @override
    def wait_for(self, give_up: Callable[[], bool]) -> None:
        while not give_up():
            self.waited.set()
            time.sleep(0.01)


class Bench:
    """A watch over a table that changes when its orphan is ended."""

    def __init__(self) -> None:
        self.present = FOUND
        self.scans = 0
        self.fail = False
        self.memory_back = MemoryAtOnce()
        self.store = SessionStore()
        self.background = Background()
        self.watch = OrphanWatch(self._scan, self._end, self.background, self.store)
        self.seen: list[Verdicts] = []
        self.problems: list[Problem] = []
        self.watch.verdicts.connect(self.seen.append)
        self.watch.failed.connect(self.problems.append)

    def close(self) -> None:
        self.watch.close()
        assert self.background.close()

    def _scan(self) -> Verdicts:
        self.scans += 1
        if self.fail:
            raise SplitpinError("The process table cannot be read.", "Start Splitpin again.")
        return self.present

    def _end(self, orphan: Orphan, give_up: Callable[[], bool]) -> EndReport:
        self.present = Verdicts()
        self.memory_back.wait_for(give_up)
        return REPORT


def test_the_start_of_the_program_scans_at_once(qtbot: QtBot) -> None:
    bench = Bench()
    bench.watch.begin()
    qtbot.waitUntil(lambda: bench.seen == [FOUND])
    bench.close()


def test_scans_go_on_while_the_engine_is_stopped_and_rest_while_it_runs(qtbot: QtBot) -> None:
    bench = Bench()
    timer = bench.watch._timer
    bench.watch.begin()
    qtbot.waitUntil(lambda: len(bench.seen) == 1)
    assert timer.isActive() and timer.interval() == 10_000
    bench.store.apply(StartRequested(tiny_plan()))
    assert not timer.isActive()
    bench.store.apply(ProcessEnded())
    assert timer.isActive()
    qtbot.waitUntil(lambda: len(bench.seen) == 2)
    bench.close()


def test_a_start_gets_fresh_verdicts_first(qtbot: QtBot) -> None:
    bench = Bench()
    answers: list[Verdicts] = []
    bench.watch.scan_then(answers.append)
    qtbot.waitUntil(lambda: answers == [FOUND])
    assert bench.scans == 1
    bench.close()


def test_the_end_of_an_orphan_is_reported_and_the_next_scan_is_empty(qtbot: QtBot) -> None:
    bench = Bench()
    reports: list[EndReport] = []
    bench.watch.ended.connect(reports.append)
    bench.watch.end(FOUND.orphans[0])
    bench.watch.end(FOUND.orphans[0])  # a double click ends it once
    qtbot.waitUntil(lambda: bench.seen == [Verdicts()])
    assert reports == [REPORT]
    bench.close()


def test_closing_does_not_wait_for_memory_that_does_not_come_back(qtbot: QtBot) -> None:
    bench = Bench()
    held = MemoryNeverBack()
    bench.memory_back = held
    bench.watch.end(FOUND.orphans[0])
    assert held.waited.wait(10)
    bench.close()


def test_a_scan_that_fails_is_told_blocks_no_start_and_the_next_one_works(qtbot: QtBot) -> None:
    bench = Bench()
    bench.fail = True
    answers: list[Verdicts] = []
    bench.watch.scan_then(answers.append)
    qtbot.waitUntil(lambda: answers == [Verdicts()])
    assert len(bench.problems) == 1
    bench.fail = False
    bench.watch.scan()
    qtbot.waitUntil(lambda: bench.seen == [FOUND])
    bench.close()
