"""What runs teach about this PC is kept, and applied to what is read of it."""

import threading
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, Signal

from app.core.learned import LearnedStore
from app.core.session import EngineStage, SessionState
from app.link.background import Background
from app.link.store import SessionStore
from app.planning.speed import run_of
from engine.contract.errors import SplitpinError
from engine.contract.events import RequestDone
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan
from engine.contract.probe import ProbeLine
from engine.contract.rates import MeasuredRates
from engine.contract.residency import ResidencyReport


class Learning(QObject):
    """Learns whenever an engine is ready or has answered, off the UI thread.

    Signals:
        learned: what is known of this PC now (Experience); may come from any thread.
    """

    learned = Signal(object)

    def __init__(
        self,
        read: Callable[[], HardwareFacts],
        learned: LearnedStore,
        background: Background,
        store: SessionStore,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._read = read
        self._learned = learned
        self._background = background
        self._facts: HardwareFacts | None = None
        self._one_at_a_time = threading.Lock()  # the store reads its file and writes it back
        self._before = store.state
        store.changed.connect(self._follow)

    def read_facts(self) -> HardwareFacts:
        """The machine with what earlier runs taught of it. Not for the UI thread.

        Raises:
            SplitpinError: the machine cannot be read.
        """
        facts = self._read()
        with self._one_at_a_time:
            self._facts = facts
            self.learned.emit(self._learned.experience(facts))
            return self._learned.applied_to(facts)

    def learn_probe(self, last: ProbeLine) -> None:
        """Keep what a probe for pinned memory found. Not for the UI thread."""
        self._learn(lambda facts: self._learned.learn_probe(facts, last))

    def learn_rates(self, rates: MeasuredRates) -> None:
        """Keep how fast this PC is. Not for the UI thread."""
        self._learn(lambda facts: self._learned.learn_rates(facts, rates))

    def _learn(self, learn: Callable[[HardwareFacts], None]) -> None:
        """Nothing is learned before the machine was read."""
        with self._one_at_a_time:
            if self._facts is not None:
                learn(self._facts)
                self.learned.emit(self._learned.experience(self._facts))

    def _follow(self, state: SessionState) -> None:
        before, self._before = self._before, state
        if state.stage is EngineStage.READY and before.stage is not EngineStage.READY and state.residency is not None:
            self._run(partial(self._learn_residency, state.residency))
        if state.last_done is not None and state.last_done != before.last_done and state.plan is not None:
            self._run(partial(self._learn_run, state.plan, state.last_done))

    def _run(self, work: Callable[[], None]) -> None:
        self._background.run(work, lambda _: None, _logged)

    def _learn_residency(self, report: ResidencyReport) -> None:
        self._learn(lambda facts: self._learned.learn_residency(facts, report))

    def _learn_run(self, plan: MemoryPlan, done: RequestDone) -> None:
        run = run_of(
            plan,
            prompt_tokens=done.prompt_tokens - done.reused_tokens,
            answer_tokens=done.answer_tokens,
            decode_tok_s=done.decode_tok_s,
            prefill_tok_s=done.prefill_tok_s,
        )
        self._learn(lambda facts: self._learned.learn_run(facts, run))


def _logged(error: SplitpinError) -> None:
    """The background has logged what it is; nothing that the user could do."""
