"""Behind the Split page: keeps the model, the machine and the wishes, plans anew when one changes, starts the engine.

The page shows what the presenter makes of all this; nothing here paints.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.core.library import Library, ModelEntry
from app.core.session import EngineStage, SessionState
from app.link.background import Background
from app.link.orphan_watch import OrphanWatch
from app.link.store import SessionStore
from app.orphans.verdicts import Orphan
from app.planning.wishes import Wishes
from app.ui import split_notices as said
from app.ui.notices import DISMISS, Notice, of_problem
from app.ui.orphan_desk import OrphanDesk
from app.ui.pages.split_page import SplitPage
from app.ui.split_inputs import SplitInputs
from app.ui.split_plan import Answer, Question, answer, gain, largest_context, left_over
from app.ui.split_presenter import present
from engine.contract.errors import Problem, SplitpinError
from engine.contract.estimate import KV_PAGE_TOKENS
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, SimulatedGpu, Tier
from engine.contract.shape import ModelShape
from engine.contract.units import round_up


class SplitDesk(QObject):
    """Signals:
    launch_wanted: an engine is to be started with this MemoryPlan.
    stop_wanted: the engine is to be stopped.
    model_changed: another model was chosen (ModelEntry).
    wishes_changed: the wishes for a model changed (its folder as Path, Wishes).
    quota_learned: the user takes what the engine was granted as the quota (bytes).
    add_model_wanted: a model folder is to be added.
    start_refused: a start that was asked for is not possible now; the page says why.
    changed: something that the tray shows may have changed.
    """

    launch_wanted = Signal(object)
    stop_wanted = Signal()
    model_changed = Signal(object)
    wishes_changed = Signal(object, object)
    quota_learned = Signal(object)
    add_model_wanted = Signal()
    start_refused = Signal()
    changed = Signal()

    def __init__(
        self,
        page: SplitPage,
        store: SessionStore,
        watch: OrphanWatch,
        background: Background,
        *,
        read_facts: Callable[[], HardwareFacts],
        simulated_gpu: SimulatedGpu | None = None,
        clock: Callable[[], datetime] = datetime.now,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._page = page
        self._background = background
        self._read_facts = read_facts
        self._simulated_gpu = simulated_gpu
        self._clock = clock
        self._entries: tuple[ModelEntry, ...] = ()  # the library looks at the disk to tell them
        self._saved: dict[Path, Wishes] = {}
        self._entry: ModelEntry | None = None
        self._shape: ModelShape | None = None
        self._facts: HardwareFacts | None = None
        self._answer = Answer()
        self._shape_problem: Problem | None = None
        self._inputs = SplitInputs(session=store.state)
        self._left_over = OrphanDesk(watch, self)
        self._reports: list[Notice] = []
        self._starting = False
        page.stop_wished.connect(self._wish_stop)
        page.context_wished.connect(self.wish_context)
        page.pinned_wished.connect(lambda count: self._wish(pinned_layers=count))
        page.tier_wished.connect(self._wish_tier)
        page.start_wanted.connect(self.start)
        page.stop_wanted.connect(self.stop_wanted)
        page.model_wished.connect(self.choose)
        page.add_model_wanted.connect(self.add_model_wanted)
        page.notice_acted.connect(self._acted)
        store.changed.connect(self._session_changed)
        self._left_over.changed.connect(self._show)
        self._left_over.memory_changed.connect(self.read_machine)
        self._left_over.may_start.connect(self._start_now)
        self._left_over.refused_start.connect(self._refuse_start)
        self._left_over.reported.connect(self.report)

    # -- what others ask ------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> SplitInputs:
        """Everything the page shows now."""
        return self._inputs

    @property
    def orphans(self) -> tuple[Orphan, ...]:
        return self._left_over.orphans

    @property
    def plan(self) -> MemoryPlan | None:
        """What Start would send."""
        return self._answer.plan

    @property
    def why_not_start(self) -> str | None:
        """Why Start is impossible now, in a few words; None: it is possible."""
        if self._entry is None:
            return "no model"
        if self._inputs.blocked is not None:
            return "this model can only be planned"
        if self._answer.plan is not None:
            return None
        return "this split does not fit" if self._inputs.problem is not None else "the machine is being read"

    def report(self, notice: Notice) -> None:
        """Show a notice until it is dismissed."""
        self._reports.append(notice)
        self._show()

    # -- model and machine ----------------------------------------------------------------------------------------

    def show_library(self, library: Library, saved: dict[Path, Wishes], current: Path | None) -> None:
        """Take the list of models and their wishes, and choose one."""
        self._saved = saved
        self._entries = entries = library.entries
        chosen = next((entry for entry in entries if entry.folder == current), entries[0] if entries else None)
        if chosen is None:
            self._show()
        else:
            self.choose(chosen.folder)

    def choose(self, folder: Path) -> None:
        """Take another model. Its folder is read in the background."""
        entry = next((entry for entry in self._entries if entry.folder == folder), None)
        if entry is None or self._inputs.session.running:
            return
        self._entry, self._shape, self._shape_problem, self._answer = entry, None, None, Answer()
        self.model_changed.emit(entry)
        self._show()
        self._background.run(
            entry.read_shape,
            lambda shape: self._got_shape(entry, shape),
            lambda error: self._got_shape(entry, error),
        )

    def _got_shape(self, entry: ModelEntry, found: ModelShape | SplitpinError) -> None:
        if entry is not self._entry:
            return  # the user went on to another model
        if isinstance(found, SplitpinError):
            self._shape_problem = found.problem
        else:
            self._shape = found
        self._replan()

    def read_machine(self) -> None:
        """Read the facts again, in the background."""
        self._background.run(self._read_facts, self._got_facts, self._no_facts)

    def _got_facts(self, facts: HardwareFacts) -> None:
        self._facts = facts
        self._replan()

    def _no_facts(self, error: SplitpinError) -> None:
        self.report(of_problem(error.problem))

    # -- wishes ---------------------------------------------------------------------------------------------------

    @property
    def wishes(self) -> Wishes:
        """The wishes for the chosen model, with the simulated GPU of this run."""
        saved = self._saved.get(self._entry.folder, Wishes()) if self._entry is not None else Wishes()
        return saved.model_copy(update={"simulated_gpu": self._simulated_gpu})

    def _wish(self, **changes: object) -> None:
        if self._entry is None or self._inputs.session.running:
            return
        wishes = self.wishes.model_copy(update={**changes, "simulated_gpu": None})
        self._saved[self._entry.folder] = wishes
        self.wishes_changed.emit(self._entry.folder, wishes)
        self._replan()

    def _wish_stop(self, index: int) -> None:
        stops = self._answer.stops.stops
        if index < len(stops):
            self._wish(context_tokens=stops[index].context_tokens)

    def wish_context(self, wanted: int | None) -> None:
        """An exact context, rounded up to whole pages; None: the largest that fits."""
        if self._shape is None or self._facts is None or self._entry is None:
            return
        if wanted is None:
            question = Question(self._shape, self._facts, self.wishes, self._entry.folder)
            wanted = largest_context(question, self._answer.stops)
        if wanted is not None:
            self._wish(context_tokens=min(round_up(wanted, KV_PAGE_TOKENS), self._shape.max_context_tokens))

    def _wish_tier(self, layer: int, tier: Tier | None) -> None:
        forced = {other: kept for other, kept in self.wishes.forced.items() if other != layer}
        self._wish(forced=forced if tier is None else {**forced, layer: tier})

    # -- the engine -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for left-over engines, read the machine once more, plan, start."""
        if self._starting or self._inputs.session.running:
            return
        if self.why_not_start is not None:
            self.start_refused.emit()
            return
        self._starting = True
        self._left_over.check_before_start()

    def _refuse_start(self) -> None:
        self._starting = False
        self.start_refused.emit()

    def _start_now(self) -> None:
        self._starting = True
        self._left_over.forget_refusal()
        self._background.run(self._read_facts, self._facts_for_start, self._no_facts_for_start)

    def _facts_for_start(self, facts: HardwareFacts) -> None:
        self._starting = False
        self._facts = facts
        self._replan()
        if self._answer.plan is None:
            self.start_refused.emit()
            return
        self._reports = [kept for kept in self._reports if kept.severity != "ok"]
        self.launch_wanted.emit(self._answer.plan)

    def _no_facts_for_start(self, error: SplitpinError) -> None:
        self._starting = False
        self._no_facts(error)

    def _session_changed(self, session: SessionState) -> None:
        before = self._inputs.session
        loading = session.loading or (self._inputs.loading if session.running else None)
        ready_at = self._inputs.ready_at
        if session.stage is EngineStage.READY and before.stage is not EngineStage.READY:
            ready_at = f"{self._clock():%H:%M}"
        self._inputs = replace(self._inputs, session=session, loading=loading, ready_at=ready_at)
        if before.running and not session.running:
            self.read_machine()  # the engine's memory is free again
        self._show()

    def end_orphan(self) -> None:
        """End the left-over process that is shown."""
        self._left_over.end_first()

    # -- notices --------------------------------------------------------------------------------------------------

    def _acted(self, notice: Notice, action: str) -> None:
        match action:
            case said.START:
                self.start()
            case said.START_ANYWAY:
                self._start_now()
            case said.LARGEST:
                self.wish_context(None)
            case said.LEARN:
                if (granted := said.granted_pin_bytes(self._inputs)) is not None:
                    self.quota_learned.emit(granted)
            case said.END:
                self._left_over.end_first()
            case said.END_ASKED:
                self._left_over.end_asked()
            case said.KEEP:
                self._left_over.keep_asked()
            case _ if action == DISMISS:
                self._left_over.forget_refusal()
                self._reports = [kept for kept in self._reports if kept != notice]
        self._show()

    # -- showing --------------------------------------------------------------------------------------------------

    def _replan(self) -> None:
        if self._shape is not None and self._facts is not None and self._entry is not None:
            self._answer = answer(Question(self._shape, self._facts, self.wishes, self._entry.folder))
        self._show()

    def _show(self) -> None:
        found = self._answer
        self._inputs = replace(
            self._inputs,
            model_name=None if self._entry is None else self._entry.name,
            shape=self._shape,
            facts=self._facts,
            wishes=self.wishes,
            plan=found.plan,
            drawn=found.drawn,
            problem=self._shape_problem or found.problem,
            stops=found.stops,
            quota=found.quota,
            left_over=left_over(self.orphans),
        )
        self._page.show_models(self._entries, self._entry)
        self._page.show_view(present(self._inputs))
        self._page.show_notices(
            said.compose(
                said.NoticeInputs(
                    self._inputs,
                    self._clock(),
                    largest_context=found.largest_context,
                    orphans=self.orphans,
                    gain=self._gain(),
                    refused=self._left_over.refused,
                    asked=self._left_over.asked,
                    ending=self._left_over.ending,
                    reports=tuple(self._reports),
                )
            )
        )
        self.changed.emit()

    def _gain(self) -> str:
        ours = self._left_over.ours
        if not ours or self._shape is None or self._facts is None or self._entry is None:
            return ""
        return gain(Question(self._shape, self._facts, self.wishes, self._entry.folder), ours)
