"""Another split for the engine that runs: from the click on Apply to the news of what became of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.core.session import ChangeGivenUp, ChangeRequested, EngineStage, SessionState, SplitChange
from app.link.background import Background
from app.link.plan_apply import BUSY, PlanApply
from app.link.store import SessionStore
from app.planning.beside import facts_beside
from app.planning.change import same_split
from app.planning.wishes import Wishes
from app.ui.model_desk import ModelDesk
from app.ui.notices import Action, Notice, of_problem
from app.ui.plan_desk import PlanDesk
from app.ui.split_change import RESTART, moves_words, pending_of
from app.ui.split_inputs import Pending
from app.ui.wording import duration
from engine.contract.errors import Problem, SplitpinError
from engine.contract.events import PlanChanged
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan

CHANGE = "change"  # what its notices are about, and the button of the one that tells of a refusal


class ChangeDesk(QObject):
    """Signals:
    changed: what it says may be different.
    stop_wanted: the engine is to be stopped; it will be started again.
    start_wanted: it has stopped, and is to be started with what is wished for.
    reported: there is something to say (Notice).
    outdated: what was said of the last change is over.
    """

    changed = Signal()
    stop_wanted = Signal()
    start_wanted = Signal()
    reported = Signal(object)
    outdated = Signal()

    def __init__(
        self,
        store: SessionStore,
        models: ModelDesk,
        plans: PlanDesk,
        plan_apply: PlanApply,
        background: Background,
        read_facts: Callable[[], HardwareFacts],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._models = models
        self._plans = plans
        self._apply = plan_apply
        self._background = background
        self._read_facts = read_facts
        self._base: tuple[Path, Wishes] | None = None  # what the running split was made of
        self._planned_with = Wishes()
        self._pending: Pending | None = None  # the last change that was asked for
        self._refused: tuple[MemoryPlan, Problem] | None = None
        self._restarting = False
        self._runs: MemoryPlan | None = None
        self.applying = False
        plan_apply.applied.connect(self._applied)
        plan_apply.refused.connect(self._refuse)

    @property
    def touched(self) -> bool:
        """Something else is wished for than what the running split was made of."""
        if self._store.state.stage is not EngineStage.READY or self._base is None:
            return False
        return self._base != (self._models.folder, self._plans.saved_wishes)

    @property
    def pending(self) -> Pending | None:
        """The split that follows from it; None where it is the one that runs."""
        plan = self._plans.answer.plan if self.touched else None
        refused = self._refused[1] if self._refused is not None and self._refused[0] == plan else None
        return pending_of(self._store.state, plan, refused)

    def launched(self, wishes: Wishes) -> None:
        """An engine is started with a plan for these wishes."""
        self._planned_with, self._refused = wishes, None
        self._remember()

    # -- what the user does ---------------------------------------------------------------------------------------

    def act(self) -> None:
        """Apply what is pending, or start again with it; does nothing where nothing is, or something is under way."""
        pending = self.pending
        if pending is None or self.applying or self._store.state.change is not None:
            return
        self.outdated.emit()
        if pending.restart is not None:
            self._store.apply(ChangeRequested(SplitChange(pending.plan, restart=True)))
            self.follow(self._store.state)
            return
        self._set_applying(True)
        self._background.run(self._read_facts, self._got, self._fail)

    def undo(self) -> None:
        """Go back to what runs; or call off a change that waits for its turn."""
        change = self._store.state.change
        if change is not None and change.restart:
            self._store.apply(ChangeGivenUp())
        elif change is not None:
            self._apply.call_off()
        elif self._base is not None:
            self.outdated.emit()
            folder, wishes = self._base
            self._plans.restore(folder, wishes)
            if folder != self._models.folder:
                self._models.choose(folder)

    def forget_restart(self) -> None:
        """The engine is stopped for good."""
        self._restarting = False

    # -- what becomes of it ---------------------------------------------------------------------------------------

    def follow(self, state: SessionState) -> None:
        """The engine's state: a restart waits for the end of the answer, then for the end of the engine."""
        if state.plan is not self._runs:
            before, self._runs = self._runs, state.plan
            if before is not None and state.plan is not None and state.stage is EngineStage.READY:
                self._adopt(state.plan)
        if state.change is not None and state.change.restart and state.request is None:
            self._restarting = True
            self.stop_wanted.emit()
        elif self._restarting and not state.running:
            self._restarting = False
            if state.stage is EngineStage.STOPPED:
                self.start_wanted.emit()

    def _remember(self) -> None:
        folder = self._models.folder
        self._base = None if folder is None else (folder, self._plans.saved_wishes)

    def _adopt(self, plan: MemoryPlan) -> None:
        """Somebody else has given the engine another split: its context takes the place of the wish for the old one."""
        ours = self._pending is not None and same_split(plan, self._pending.plan)
        if self._base is None or ours or self.touched:
            return
        folder, wishes = self._base
        self._plans.restore(folder, wishes.model_copy(update={"context_tokens": plan.context_tokens}))
        self._remember()
        self.changed.emit()

    def _set_applying(self, applying: bool) -> None:
        self.applying = applying
        self.changed.emit()

    def _got(self, facts: HardwareFacts) -> None:
        """The machine was read: ask for what is planned with it, unless that does not fit or needs a start now."""
        state = self._store.state
        if state.stage is EngineStage.READY and state.plan is not None and state.residency is not None:
            self._plans.take_facts(facts_beside(facts, state.residency, state.plan, self._planned_with))
            pending = self.pending
            if pending is not None and pending.restart is None:
                self._pending = pending
                self._apply.apply(pending.plan)
        self._set_applying(False)

    def _fail(self, error: SplitpinError) -> None:
        self._set_applying(False)
        self.reported.emit(not_changed(error.problem, can_restart=False))

    def _applied(self, news: PlanChanged) -> None:
        self._planned_with = self._plans.wishes
        self._remember()
        text = "" if self._pending is None else f"{moves_words(self._pending.change)}."
        self.reported.emit(Notice("ok", f"The split was changed in {duration(news.took_s)}", text, about=CHANGE))
        self.changed.emit()

    def _refuse(self, problem: Problem) -> None:
        if self._pending is None or problem.kind == BUSY:  # somebody else is changing it: that goes by
            self.reported.emit(not_changed(problem, can_restart=False))
            return
        self._refused = self._pending.plan, problem
        self.reported.emit(not_changed(problem))


def not_changed(problem: Problem, *, can_restart: bool = True) -> Notice:
    """Why the engine runs on with the split it has."""
    actions = (Action(RESTART, CHANGE),) if can_restart else ()
    title = "The split was not changed; the engine runs on with the one it has"
    return replace(of_problem(problem, *actions, title=title), about=CHANGE)
