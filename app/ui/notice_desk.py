"""The notices of the Split page: which there are, and what their buttons do."""

from collections.abc import Callable
from datetime import datetime

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication

from app.ui import crash_fix as crash_fixes
from app.ui import split_notices as said
from app.ui.change_desk import CHANGE, ChangeDesk
from app.ui.engine_notices import END_ENGINE, STOP_ENGINE
from app.ui.measure_desk import MeasureDesk
from app.ui.model_desk import ModelDesk
from app.ui.notices import DISMISS, Notice
from app.ui.orphan_desk import OrphanDesk
from app.ui.plan_desk import LONGEST, PlanDesk
from app.ui.reports import Reports
from app.ui.split_inputs import SplitInputs
from app.ui.split_plan import gain
from app.ui.start_desk import StartDesk


class NoticeDesk(QObject):
    """Signals:
    acted: a button was pressed, and has done what it does.
    start_wanted: the engine is to be started with these wishes beside the user's own (dict).
    stop_wanted, end_wanted: it is to be stopped; it hangs and is to be ended.
    read_wanted: the machine is to be read again.
    port_wished: the engine is to listen on another port from now on, and to start (its number, 0: any free one).
    remove_model_wanted: a model folder (Path) is to leave the list; its files stay.
    log_wanted: a log file (its path) is to be opened.
    page_file_wanted: the system's settings of the page file are to be opened.
    """

    acted = Signal()
    start_wanted = Signal(object)
    stop_wanted = Signal()
    end_wanted = Signal()
    read_wanted = Signal()
    port_wished = Signal(int)
    remove_model_wanted = Signal(object)
    log_wanted = Signal(str)
    page_file_wanted = Signal()

    def __init__(
        self,
        inputs: Callable[[], SplitInputs],
        models: ModelDesk,
        plans: PlanDesk,
        left_over: OrphanDesk,
        start: StartDesk,
        change: ChangeDesk,
        measuring: MeasureDesk,
        reports: Reports,
        *,
        clock: Callable[[], datetime],
        can_open_page_file: bool,
        parent: QObject | None = None,
    ) -> None:
        """`inputs`: everything the page shows now."""
        super().__init__(parent)
        self._inputs = inputs
        self._models = models
        self._plans = plans
        self._left_over = left_over
        self._start = start
        self._change = change
        self._measuring = measuring
        self._reports = reports
        self._clock = clock
        self._can_open_page_file = can_open_page_file

    @property
    def notices(self) -> tuple[Notice, ...]:
        """All of them; the page shows those that matter most."""
        question, ours = self._plans.question, self._left_over.ours
        return said.compose(
            said.NoticeInputs(
                self._inputs(),
                self._clock(),
                largest_context=self._plans.answer.largest_context,
                orphans=self._left_over.orphans,
                gain=gain(question, ours) if ours and question is not None else "",
                refused=self._left_over.refused,
                asked=self._left_over.asked,
                ending=self._left_over.ending,
                reports=self._reports.notices,
                removable=self._models.removable,
                crash_fix=self.crash_fix,
            )
        )

    @property
    def crash_fix(self) -> crash_fixes.CrashFix | None:
        """The smallest change that avoids the crash that is shown."""
        return crash_fixes.crash_fix(self._inputs(), self._plans.question, can_open_page_file=self._can_open_page_file)

    def start_changed(self) -> None:
        """Start with that change."""
        if (fix := self.crash_fix) is None:
            return
        if "pinned_layers" in fix.wishes:  # the page shows that, and takes it back
            self._wishing(lambda: self._plans.wish(**fix.wishes))
        self.start_wanted.emit(fix.wishes)

    def act(self, notice: Notice, action: str) -> None:
        """A button of a notice was pressed."""
        if action == DISMISS:
            self._left_over.forget_refusal()
            self._reports.dismiss(notice)
        elif action == crash_fixes.COPY_DETAILS:
            QGuiApplication.clipboard().setText(f"{notice.title}\n{notice.text}\n{notice.details}")
        elif (fix := said.fix_of(self._inputs(), action)) is None:
            self._deeds()[action]()
        elif fix.change == "end_process":
            self._left_over.end_pids([pid for pid in fix.numbers.values() if isinstance(pid, int)])
        else:
            self._wishing(lambda: self._plans.follow(fix))
        self.acted.emit()

    def _deeds(self) -> dict[str, Callable[[], object]]:
        """What the buttons do; those that follow a fix of the plan are in `act`."""
        inputs = self._inputs()
        return {
            crash_fixes.START: lambda: self.start_wanted.emit({}),
            crash_fixes.START_WITH: self.start_changed,
            crash_fixes.OPEN_PAGE_FILE: self.page_file_wanted.emit,
            crash_fixes.USE_PORT: lambda: self.port_wished.emit(said.fixing_port(inputs)),
            said.START_ANYWAY: self._start.go_on,
            said.LARGEST: lambda: self._wishing(lambda: self._plans.wish_context(None)),
            said.READ_MACHINE: self.read_wanted.emit,
            said.MEASURE: lambda: self._measuring.measure(inputs),
            said.READ_AGAIN: self._models.read_again,
            said.REMOVE: lambda: self.remove_model_wanted.emit(self._models.folder),
            said.OPEN_LOG: lambda: self.log_wanted.emit(said.log_file(inputs)),
            said.LIMIT_PINS: lambda: self._plans.keep_limit(said.granted_pin_bytes(inputs)),
            said.FREE_CHOICES: self._plans.free_choices,
            said.LIFT_LIMIT: lambda: self._plans.keep_limit(None),
            STOP_ENGINE: self.stop_wanted.emit,
            END_ENGINE: self.end_wanted.emit,
            CHANGE: self._change.act,
            said.END: self._left_over.end_first,
            said.END_ASKED: self._left_over.end_asked,
            said.KEEP: self._left_over.keep_asked,
        }

    def _wishing(self, wish: Callable[[], None]) -> None:
        self._reports.forget(LONGEST)
        wish()
