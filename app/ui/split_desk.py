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
from app.ui.model_desk import ModelDesk
from app.ui.notices import DISMISS, Notice, of_problem
from app.ui.orphan_desk import OrphanDesk
from app.ui.pages.split_page import SplitPage
from app.ui.split_inputs import SplitInputs
from app.ui.split_plan import Answer, Question, answer, gain, largest_context, left_over
from app.ui.split_presenter import present
from app.ui.split_wishes import SplitWishes
from app.ui.start_desk import StartDesk
from app.ui.wording import tokens
from engine.contract.errors import SplitpinError
from engine.contract.estimate import KV_PAGE_TOKENS
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, SimulatedGpu, Tier
from engine.contract.units import round_up

_LONGEST = "longest context"  # what a notice is about


class SplitDesk(QObject):
    """Signals:
    launch_wanted: an engine is to be started with this MemoryPlan.
    stop_wanted: the engine is to be stopped.
    port_wished: the engine is to listen on another port from now on, and to start (its number, 0: any free one).
    model_changed: another model was chosen (ModelEntry).
    wishes_changed: the wishes for a model changed (its folder as Path, Wishes).
    pins_limited: the user takes what the engine was granted as the limit from now on (bytes), or lifts it (None).
    add_model_wanted: a model folder is to be added.
    remove_model_wanted: a model folder (Path) is to leave the list; its files stay.
    log_wanted: a log file (its path) is to be opened.
    start_refused: a start that was asked for is not possible now; the page says why.
    changed: something that the tray shows may have changed.
    """

    launch_wanted = Signal(object)
    stop_wanted = Signal()
    port_wished = Signal(int)
    model_changed = Signal(object)
    wishes_changed = Signal(object, object)
    pins_limited = Signal(object)
    add_model_wanted = Signal()
    remove_model_wanted = Signal(object)
    log_wanted = Signal(str)
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
        self._clock = clock
        self._models = ModelDesk(background, is_fixed=lambda: self._inputs.session.running, parent=self)
        self._wishes = SplitWishes(simulated_gpu)
        self._facts: HardwareFacts | None = None
        self._answer = Answer()
        self._inputs = SplitInputs(session=store.state)
        self._left_over = OrphanDesk(watch, self)
        self._reports: list[Notice] = []
        self._start = StartDesk(self._left_over, background, read_facts, self)
        page.stop_wished.connect(self._wish_stop)
        page.context_wished.connect(self.wish_context)
        page.pinned_wished.connect(lambda count: self._wish(pinned_layers=count))
        page.tier_wished.connect(self._wish_tier)
        page.start_wanted.connect(self.start)
        page.stop_wanted.connect(self.stop_wanted)
        page.model_wished.connect(self._models.choose)
        page.add_model_wanted.connect(self.add_model_wanted)
        page.notice_acted.connect(self._acted)
        self._models.chosen.connect(self._model_chosen)
        self._models.read.connect(self._replan)
        store.changed.connect(self._session_changed)
        self._left_over.changed.connect(self._show)
        self._left_over.memory_changed.connect(self.read_machine)
        self._start.changed.connect(self._show)
        self._start.cleared.connect(self._start_cleared)
        self._start.refused.connect(self.start_refused)
        self._start.failed.connect(self._no_facts)
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
        if self._models.entry is None:
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

    def _forget(self, about: str) -> None:
        self._reports = [kept for kept in self._reports if kept.about != about]

    # -- model and machine ----------------------------------------------------------------------------------------

    def show_library(self, library: Library, saved: dict[Path, Wishes], current: Path | None) -> None:
        """Take the list of models and their wishes, and choose one."""
        self._wishes.saved = saved
        self._models.show_library(library, current)
        if self._models.entry is None:
            self._answer = Answer()
        self._show()

    def choose(self, folder: Path) -> None:
        """Take another model."""
        self._models.choose(folder)

    def _model_chosen(self, entry: ModelEntry) -> None:
        self._forget(_LONGEST)
        self._answer = Answer()
        self.model_changed.emit(entry)
        self._show()

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
        """The wishes for the chosen model, with those that hold for all of them."""
        return self._wishes.of(self._models.folder)

    def limit_pins(self, most_bytes: int | None) -> None:
        """Pin at most this much, whatever the quota; None: as much as the quota allows."""
        self._wishes.pin_cap_bytes = most_bytes
        if most_bytes is not None and self.wishes.pinned_layers is not None:
            self._keep(pinned_layers=None)  # a number of layers that was chosen before may be more than that
        self._replan()

    def _wish(self, **changes: object) -> None:
        if self._inputs.session.running:
            return
        self._forget(_LONGEST)
        self._keep(**changes)
        self._replan()

    def _keep(self, **changes: object) -> None:
        if (folder := self._models.folder) is not None:
            self.wishes_changed.emit(folder, self._wishes.change(folder, **changes))

    def _wish_stop(self, index: int) -> None:
        stops = self._answer.stops.stops
        if index < len(stops):
            self._wish(context_tokens=stops[index].context_tokens)

    def wish_context(self, wanted: int | None) -> None:
        """An exact context, rounded up to whole pages; None: the largest that fits."""
        if (question := self._question) is None:
            return
        if wanted is None:
            wanted = largest_context(question, self._answer.stops)
        if wanted is None:
            return
        most = question.shape.max_context_tokens
        self._wish(context_tokens=min(round_up(min(wanted, most), KV_PAGE_TOKENS), most))
        if wanted > most:
            self.report(Notice("info", f"The longest context of this model is {tokens(most)}", about=_LONGEST))

    def _wish_tier(self, layer: int, tier: Tier | None) -> None:
        forced = {other: kept for other, kept in self.wishes.forced.items() if other != layer}
        self._wish(forced=forced if tier is None else {**forced, layer: tier})

    def _limit_pins(self, most_bytes: int | None) -> None:
        self.limit_pins(most_bytes)
        if self.wishes.simulated_gpu is None:  # what a simulated GPU refused says nothing of this PC
            self.pins_limited.emit(most_bytes)

    # -- the engine -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for left-over engines, read the machine once more, plan, start."""
        if self._start.busy or self._inputs.session.running:
            return
        if self.why_not_start is not None:
            self.start_refused.emit()
            return
        self._start.begin()

    def _start_cleared(self, facts: HardwareFacts) -> None:
        self._facts = facts
        self._replan()
        if self._answer.plan is None:
            self.start_refused.emit()
            return
        self._reports = [kept for kept in self._reports if kept.severity != "ok"]
        self.launch_wanted.emit(self._answer.plan)

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
            case said.USE_PORT:
                if (port := said.fixing_port(self._inputs)) is not None:
                    self.port_wished.emit(port)
            case said.START_ANYWAY:
                self._start.go_on()
            case said.LARGEST:
                self.wish_context(None)
            case said.READ_AGAIN:
                self._models.read_again()
            case said.REMOVE:
                self.remove_model_wanted.emit(self._models.folder)
            case said.OPEN_LOG:
                self.log_wanted.emit(said.log_file(self._inputs))
            case said.LIMIT_PINS:
                if (granted := said.granted_pin_bytes(self._inputs)) is not None:
                    self._limit_pins(granted)
            case said.LIFT_LIMIT:
                self._limit_pins(None)
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

    def _replan(self) -> None:
        if (question := self._question) is not None:
            self._answer = answer(question)
        self._show()

    @property
    def _question(self) -> Question | None:
        """What there is to plan; None until model and machine are read."""
        shape, facts, folder = self._models.shape, self._facts, self._models.folder
        return None if shape is None or facts is None or folder is None else Question(shape, facts, self.wishes, folder)

    def _show(self) -> None:
        found = self._answer
        self._inputs = replace(
            self._inputs,
            model_name=None if self._models.entry is None else self._models.entry.name,
            shape=self._models.shape,
            facts=self._facts,
            wishes=self.wishes,
            plan=found.plan,
            drawn=found.drawn,
            problem=self._models.problem or found.problem,
            stops=found.stops,
            quota=found.quota,
            left_over=left_over(self.orphans),
            starting=self._start.busy,
        )
        self._page.show_models(self._models.entries, self._models.entry)
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
                    removable=self._models.removable,
                )
            )
        )
        self.changed.emit()

    def _gain(self) -> str:
        ours, question = self._left_over.ours, self._question
        return gain(question, ours) if ours and question is not None else ""
