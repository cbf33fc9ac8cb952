"""Behind the Split page: keeps its parts together, says what it shows, starts the engine, measures this PC.

The page shows what the presenter makes of all this; nothing here paints. What Start would send is `PlanDesk`'s.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.core.learned import Experience
from app.core.library import Library, ModelEntry
from app.core.session import SessionState
from app.core.shape_cache import ShapeCache
from app.link.background import Background
from app.link.measurement import Measurement
from app.link.orphan_watch import OrphanWatch
from app.link.plan_apply import PlanApply
from app.link.store import SessionStore
from app.planning.wishes import Wishes
from app.ui import crash_fix as crash_fixes
from app.ui.change_desk import CHANGE, ChangeDesk
from app.ui.measure_desk import MeasureDesk
from app.ui.model_desk import ModelDesk
from app.ui.notice_desk import NoticeDesk
from app.ui.notices import Notice, of_problem
from app.ui.orphan_desk import OrphanDesk
from app.ui.pages.split_page import SplitPage
from app.ui.plan_desk import LONGEST, PlanDesk
from app.ui.reports import Reports
from app.ui.split_inputs import SplitInputs
from app.ui.split_plan import left_over
from app.ui.split_presenter import present
from app.ui.start_desk import StartDesk
from engine.contract.errors import SplitpinError
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, SimulatedGpu


class SplitDesk(QObject):
    """Signals:
    launch_wanted: an engine is to be started with this MemoryPlan.
    stop_wanted: the engine is to be stopped.
    end_wanted: it hangs, and is to be ended.
    port_wished: the engine is to listen on another port from now on, and to start (its number, 0: any free one).
    model_changed: another model was chosen (ModelEntry).
    wishes_changed: the wishes for a model changed (its folder as Path, Wishes).
    pins_limited: the user takes what the engine was granted as the limit from now on (bytes), or lifts it (None).
    add_model_wanted: a model folder is to be added.
    remove_model_wanted: a model folder (Path) is to leave the list; its files stay.
    log_wanted: a log file (its path) is to be opened.
    page_file_wanted: the system's settings of the page file are to be opened.
    start_refused: a start that was asked for is not possible now; the page says why.
    changed: something that the tray shows may have changed.
    """

    launch_wanted = Signal(object)
    stop_wanted = Signal()
    end_wanted = Signal()
    port_wished = Signal(int)
    model_changed = Signal(object)
    wishes_changed = Signal(object, object)
    pins_limited = Signal(object)
    add_model_wanted = Signal()
    remove_model_wanted = Signal(object)
    log_wanted = Signal(str)
    page_file_wanted = Signal()
    start_refused = Signal()
    changed = Signal()

    def __init__(
        self,
        page: SplitPage,
        store: SessionStore,
        watch: OrphanWatch,
        background: Background,
        measurement: Measurement,
        plan_apply: PlanApply,
        *,
        read_facts: Callable[[], HardwareFacts],
        shapes: ShapeCache,
        simulated_gpu: SimulatedGpu | None = None,
        can_open_page_file: bool = False,
        clock: Callable[[], datetime] = datetime.now,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._page = page
        self._background = background
        self._read_facts = read_facts
        self._clock = clock
        self._inputs = SplitInputs(session=store.state)
        self._closed = False
        is_fixed: Callable[[], bool] = lambda: not self._inputs.adjustable  # noqa: E731 - for two of its parts
        self._models = ModelDesk(background, shapes, is_fixed=is_fixed, parent=self)
        self._plans = PlanDesk(self._models, is_fixed=is_fixed, simulated_gpu=simulated_gpu, parent=self)
        self.left_over = OrphanDesk(watch, self)
        self._reports = Reports(self)
        self._start = StartDesk(self.left_over, background, read_facts, self._models, self)
        self._change = ChangeDesk(store, self._models, self._plans, plan_apply, background, read_facts, self)
        self._once: dict[str, Any] = {}  # wishes for the start that is on its way, and for no other
        self.measuring = MeasureDesk(measurement, self)
        self._notices = NoticeDesk(
            lambda: self._inputs,
            self._models,
            self._plans,
            self.left_over,
            self._start,
            self._change,
            self.measuring,
            self._reports,
            clock=clock,
            can_open_page_file=can_open_page_file,
            parent=self,
        )
        self._connect_page(page)
        self._models.chosen.connect(self._model_chosen)
        self._models.read.connect(self._plans.plan)
        self._models.reported.connect(self.report)
        self._plans.planned.connect(self._show)
        self._plans.wishes_changed.connect(self.wishes_changed)
        self._plans.pins_limited.connect(self.pins_limited)
        self._plans.reported.connect(self.report)
        store.changed.connect(self._session_changed)
        watch.verdicts.connect(self._plans.take_verdicts)
        self.left_over.changed.connect(self._show)
        self.left_over.memory_changed.connect(self.read_machine)
        self.left_over.reported.connect(self.report)
        self._start.changed.connect(self._show)
        self._start.cleared.connect(self._start_cleared)
        self._start.refused.connect(self.start_refused)
        self._start.failed.connect(self._no_facts)
        self._change.changed.connect(self._show)
        self._change.stop_wanted.connect(self.stop_wanted)
        self._change.start_wanted.connect(self.start)
        self._change.reported.connect(self.report)
        self._change.outdated.connect(lambda: self._reports.forget(CHANGE))
        self._reports.changed.connect(self._show)
        self._connect_notices(self._notices)
        self.measuring.changed.connect(self._show)
        self.measuring.read_wanted.connect(self.read_machine)
        self.measuring.reported.connect(self.report)

    def _connect_page(self, page: SplitPage) -> None:
        page.stop_wished.connect(lambda index: self._wishing(lambda: self._plans.wish_stop(index)))
        page.context_wished.connect(self.wish_context)
        page.pinned_wished.connect(lambda count: self._wishing(lambda: self._plans.wish(pinned_layers=count)))
        page.tier_wished.connect(lambda layer, tier: self._wishing(lambda: self._plans.wish_tier(layer, tier)))
        page.start_wanted.connect(self.start)
        page.stop_wanted.connect(self.stop)
        page.apply_wanted.connect(self._change.act)
        page.undo_wanted.connect(self._change.undo)
        page.measure_wanted.connect(lambda: self.measuring.measure(self._inputs))
        page.cancel_wanted.connect(self.measuring.cancel)
        page.model_wished.connect(self._models.choose)
        page.add_model_wanted.connect(self.add_model_wanted)
        page.notice_acted.connect(self._notices.act)

    def _connect_notices(self, notices: NoticeDesk) -> None:
        notices.acted.connect(self._show)
        notices.start_wanted.connect(self._start_with)
        notices.stop_wanted.connect(self.stop)
        notices.end_wanted.connect(self.end_wanted)
        notices.read_wanted.connect(self.read_machine)
        notices.port_wished.connect(self.port_wished)
        notices.remove_model_wanted.connect(self.remove_model_wanted)
        notices.log_wanted.connect(self.log_wanted)
        notices.page_file_wanted.connect(self.page_file_wanted)

    # -- what others ask ------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> SplitInputs:
        """Everything the page shows now."""
        return self._inputs

    @property
    def plan(self) -> MemoryPlan | None:
        """What Start would send."""
        return self._plans.answer.plan

    @property
    def wishes(self) -> Wishes:
        """The wishes for the chosen model, with those that hold for all of them."""
        return self._plans.wishes

    @property
    def why_not_start(self) -> str | None:
        """Why Start is impossible now, in a few words; None: it is possible."""
        if self._models.entry is None:
            return "no model"
        if self.measuring.state is not None:
            return "this PC is being measured"
        if self._inputs.blocked is not None:
            return self._inputs.blocked_briefly
        if self.plan is not None:
            return None
        return "this split does not fit" if self._inputs.problem is not None else "the machine is being read"

    def report(self, notice: Notice) -> None:
        """Show a notice until it is dismissed or out of date."""
        self._reports.add(notice)

    def show_known(self, known: Experience) -> None:
        """What runs and measurements have taught of this PC."""
        self._inputs = replace(self._inputs, known=known)
        self._show()

    def limit_pins(self, most_bytes: int | None) -> None:
        """Pin at most this much, whatever the quota; None: as much as the quota allows."""
        self._plans.limit_pins(most_bytes)

    def wish_context(self, wanted: int | None) -> None:
        """An exact context, rounded up to whole pages; None: the largest that fits."""
        self._wishing(lambda: self._plans.wish_context(wanted))

    def close(self) -> None:
        """The program ends: no measurement and no timer outlives it."""
        self._closed = True
        self.measuring.cancel()
        self._reports.close()

    def _wishing(self, wish: Callable[[], None]) -> None:
        self._reports.forget(LONGEST)
        wish()

    # -- model and machine ----------------------------------------------------------------------------------------

    def show_library(self, library: Library, saved: dict[Path, Wishes], current: Path | None) -> None:
        """Take the list of models and their wishes, and choose one."""
        self._plans.take_saved(saved)
        self._models.show_library(library, current)
        if self._models.entry is None:
            self._plans.forget()
        self._show()

    def _model_chosen(self, entry: ModelEntry) -> None:
        self._reports.forget(LONGEST)
        self._reports.drop_outdated()
        self._plans.forget()
        self.model_changed.emit(entry)
        self._show()

    def read_machine(self) -> None:
        """Read the facts again, in the background."""
        self._background.run(self._read_facts, self._got_facts, self._no_facts)

    def _got_facts(self, facts: HardwareFacts) -> None:
        if self._inputs.session.running:  # they count what the engine holds; a change of its split reads its own
            return
        self._plans.take_facts(facts)
        self.measuring.tell(self._inputs)

    def _no_facts(self, error: SplitpinError) -> None:
        self.report(of_problem(error.problem))

    # -- the engine -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look for left-over engines, read the machine once more, plan, start."""
        self._start_with({})

    def start_or_apply(self) -> None:
        """Start, or give the engine that runs the split on screen."""
        self._change.act() if self._inputs.session.running else self.start()

    def stop(self) -> None:
        """Stop the engine, also one that was to be started again."""
        self._change.forget_restart()
        self.stop_wanted.emit()

    def _start_with(self, wishes: dict[str, Any]) -> None:
        if self._start.busy or self._inputs.session.running:
            return
        if self.why_not_start is not None:
            self.start_refused.emit()
            return
        self._once = wishes
        self._start.begin()

    def _start_cleared(self, facts: HardwareFacts) -> None:
        self._plans.take_facts(facts)
        question, once, self._once = self._plans.question, self._once, {}
        plan = question.with_wishes(**once).possible() if once and question is not None else self.plan
        if plan is None:
            self.start_refused.emit()
            return
        self._reports.drop_outdated()
        self._change.launched(self.wishes.model_copy(update=once))
        self.launch_wanted.emit(plan)

    def _session_changed(self, session: SessionState) -> None:
        before = self._inputs.session
        loading = session.loading or (self._inputs.loading if session.running else None)
        ready_at = self._inputs.ready_at
        if session.residency is not None and session.residency != before.residency:
            ready_at = f"{self._clock():%H:%M}"
        self._inputs = replace(self._inputs, session=session, loading=loading, ready_at=ready_at)
        if before.running is not session.running:
            self._reports.drop_outdated()
        if before.running and not session.running:
            self.read_machine()  # the engine's memory is free again
            self._models.engine_ended(session.problem)
        self._show()
        self._change.follow(session)

    # -- what is shown -------------------------------------------------------------------------------------------

    @property
    def restart_words(self) -> str:
        """What starts the engine again after an error, such as "Start with 41 pinned layers"; empty: plain Start."""
        fix = self._notices.crash_fix
        return "" if fix is None or fix.action.id != crash_fixes.START_WITH else fix.action.label

    def restart(self) -> None:
        """Start again, with the smallest change that avoids the error where there is one."""
        if self.restart_words:
            self._notices.start_changed()
        else:
            self.start()

    def _show(self) -> None:
        if self._closed:  # other threads may have news on their way; the page may be gone before they arrive
            return
        found = self._plans.answer
        self._inputs = replace(
            self._inputs,
            model_name=None if self._models.entry is None else self._models.entry.name,
            shape=self._models.shape,
            facts=self._plans.facts,
            wishes=self.wishes,
            plan=found.plan,
            drawn=found.drawn,
            problem=self._models.problem or found.problem,
            stops=found.stops,
            quota=found.quota,
            left_over=left_over(self.left_over.orphans),
            starting=self._start.busy,
            touched=self._change.touched,
            pending=self._change.pending,
            applying=self._change.applying,
            measuring=self.measuring.state,
        )
        self._page.show_models(self._models.entries, self._models.entry)
        self._page.show_view(present(self._inputs))
        self._page.show_notices(self._notices.notices)
        self.changed.emit()
