"""Collects what an `EngineChild` tells."""

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from app.supervision.stop_ladder import StopLadder
from engine.contract.errors import Problem
from engine.contract.events import Event
from tests.support.tiny_plan import tiny_plan

FAST = StopLadder(command_s=10, close_s=0.5, terminate_s=0.5, gone_s=10)
IMPATIENT = StopLadder(command_s=0.3, close_s=0.3, terminate_s=0.3, gone_s=10)


def fake_engine(*options: str) -> list[str]:
    """Command of the engine without torch."""
    return [sys.executable, "-m", "tests.support.fake_engine", *options]


class Recorder:
    """One engine and all it said. Use as a context: nothing is left behind."""

    def __init__(self, folder: Path, argv: Sequence[str], ladder: StopLadder = FAST, port: int = 0) -> None:
        self.ledger = RunLedger(folder / "runs")
        self.events: list[Event] = []
        self.lines: list[str] = []
        self.ends: list[Problem | None] = []
        self._seen = threading.Condition()
        self.child = EngineChild.start(
            tiny_plan(),
            run_ledger=self.ledger,
            on_event=self._event,
            on_log=self.lines.append,
            on_end=self._end,
            engine_argv=argv,
            ladder=ladder,
            port=port,
        )

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        assert self.child.wait(20)

    @property
    def names(self) -> list[str]:
        return [event.event for event in self.events]

    def wait_for(self, name: str, timeout_s: float = 30) -> None:
        """Wait for an event of this name."""
        with self._seen:
            assert self._seen.wait_for(lambda: name in self.names or bool(self.ends), timeout_s)
        assert name in self.names, f"{self.names} {self.ends} {self.lines[-5:]}"

    def ended(self, timeout_s: float = 30) -> Problem | None:
        """Wait for the end and return how it was told."""
        assert self.child.wait(timeout_s)
        assert len(self.ends) == 1
        return self.ends[0]

    def _event(self, event: Event) -> None:
        with self._seen:
            self.events.append(event)
            self._seen.notify_all()

    def _end(self, problem: Problem | None) -> None:
        with self._seen:
            self.ends.append(problem)
            self._seen.notify_all()
