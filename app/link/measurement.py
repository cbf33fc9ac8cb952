"""Measurements of this PC in Qt's world: off the UI thread, each in a child of its own, with a way to call them off."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from PySide6.QtCore import QObject, Signal

from app.core.measuring import Cancel, Measured, Measuring, measure_rates, probe_goal, probe_pins
from app.link.background import Background
from app.link.learning import Learning
from app.planning.budgets import budgets
from app.planning.wishes import Wishes
from engine.contract.errors import SplitpinError
from engine.contract.facts import HardwareFacts
from engine.contract.formats import WeightFormat
from engine.contract.probe import ProbeLine
from engine.contract.rates import MeasuredRates


class ProbePins(Protocol):
    def __call__(
        self,
        *,
        need_bytes: int | None,
        vram_bytes: int,
        gpu_uuid: str | None,
        on_line: Callable[[ProbeLine], None],
        cancel: Cancel,
    ) -> ProbeLine: ...


class MeasureRates(Protocol):
    def __call__(
        self, *, device: str, gpu_uuid: str | None, formats: tuple[WeightFormat, ...], cancel: Cancel
    ) -> MeasuredRates: ...


class Measurement(QObject):
    """At most one at a time; what it finds is learned before it is told.

    Signals:
        changed: `state` is another one.
        done: it came to its end (Measured).
        failed: it did not, or was called off (SplitpinError).
    """

    changed = Signal()
    done = Signal(object)
    failed = Signal(object)

    _stepped = Signal(object)  # Measuring; from the thread that measures

    def __init__(
        self,
        learning: Learning,
        background: Background,
        *,
        refuse: Callable[[], None],
        probe: ProbePins = probe_pins,
        rates: MeasureRates = measure_rates,
        parent: QObject | None = None,
    ) -> None:
        """`refuse` raises a SplitpinError where this is no moment to measure; it is called off the UI thread."""
        super().__init__(parent)
        self._learning = learning
        self._background = background
        self._refuse = refuse
        self._probe = probe
        self._rates = rates
        self._cancel = Cancel()
        self._state: Measuring | None = None
        self._stepped.connect(self._set_state)

    @property
    def state(self) -> Measuring | None:
        """What is going on; None: nothing."""
        return self._state

    def begin(self, *, pins: bool, formats: tuple[WeightFormat, ...]) -> None:
        """Measure how much can be pinned, and the speed of these kinds of weights. Does nothing while one runs."""
        if self._state is not None:
            return
        cancel = self._cancel = Cancel()
        self._set_state(Measuring())
        self._background.run(lambda: self._measure(cancel, pins, formats), self._done, self._fail)

    def cancel(self) -> None:
        """Call it off; `failed` follows. Also for the end of the program."""
        if self._state is not None:
            self._cancel.cancel()

    def _measure(self, cancel: Cancel, pins: bool, formats: tuple[WeightFormat, ...]) -> Measured:
        self._refuse()
        facts = self._learning.read_facts()
        found = Measured()
        if pins:
            found = replace(found, pins=self._measure_pins(facts, cancel))
        if formats:
            self._stepped.emit(Measuring("speed"))
            gpu = facts.cuda_gpu
            rates = self._rates(
                device="cpu" if gpu is None else "cuda",
                gpu_uuid=None if gpu is None else gpu.uuid,
                formats=formats,
                cancel=cancel,
            )
            self._learning.learn_rates(rates)
            found = replace(found, rates=rates)
        return found

    def _measure_pins(self, facts: HardwareFacts, cancel: Cancel) -> ProbeLine:
        gpu, goal = facts.cuda_gpu, probe_goal(facts)
        last = self._probe(
            need_bytes=goal,
            vram_bytes=budgets(facts, Wishes()).vram.bytes or 0,
            gpu_uuid=None if gpu is None else gpu.uuid,
            on_line=lambda line: self._stepped.emit(Measuring("pins", line.pinned_bytes, goal)),
            cancel=cancel,
        )
        self._learning.learn_probe(last)
        return last

    def _set_state(self, state: Measuring | None) -> None:
        self._state = state
        self.changed.emit()

    def _done(self, found: Measured) -> None:
        self._set_state(None)
        self.done.emit(found)

    def _fail(self, error: SplitpinError) -> None:
        self._set_state(None)
        self.failed.emit(error)
