"""What holds window, tray and engine together: shortcuts, closing, the tray's wishes, announcements, the end."""

import logging
from collections.abc import Callable

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QGuiApplication
from PySide6.QtWidgets import QWidget

from app.core.session import EngineStage, SessionState
from app.link.engine_process import EngineProcess
from app.link.store import SessionStore
from app.ui.close_question import Closing
from app.ui.main_window import MainWindow
from app.ui.pages.split_page import SplitPage
from app.ui.shortcut_list import ShortcutList
from app.ui.split_desk import SplitDesk
from app.ui.tray import Tray
from app.ui.tray_view import TrayInputs, tray
from app.ui.window_memory import WindowMemory
from engine.contract.plan import Pool
from engine.contract.residency import ResidencyReport
from engine.system.protocols import MemoryUse

log = logging.getLogger(__name__)

AskClosing = Callable[[QWidget, ResidencyReport | None], Closing]
_QUARTER = 4


class Shell(QObject):
    """Signals:
    new_chat_wanted: a new chat, from the tray or by Ctrl+N.
    quitting: the program ends; the engine has ended already.
    """

    new_chat_wanted = Signal()
    quitting = Signal()

    def __init__(
        self,
        window: MainWindow,
        page: SplitPage,
        desk: SplitDesk,
        store: SessionStore,
        engine: EngineProcess,
        tray_icon: Tray,
        memory: WindowMemory,
        *,
        ask: AskClosing,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._page = page
        self._desk = desk
        self._store = store
        self._engine = engine
        self._tray = tray_icon
        self._memory = memory
        self._ask = ask
        self._stage = store.state.stage
        self._quarter = 0
        self._changing = False
        self._told_orphans = False
        self._over = False
        self._use = MemoryUse()
        window.may_close = self.may_close
        tray_icon.acted.connect(self.act)
        tray_icon.toggled.connect(self._toggle)
        store.changed.connect(self._session_changed)
        desk.start_refused.connect(self._open_split)
        desk.changed.connect(self._show_tray)
        desk.changed.connect(self._show_memory)
        self._add_shortcuts()
        self._show_tray()

    def _add_shortcuts(self) -> None:
        add = self._window.add_shortcut
        add("F5", self._desk.start_or_apply)
        add("Shift+F5", self._stop)
        add("Ctrl+G", self._edit_context)
        add("Ctrl+L", self._choose_model)
        add("Ctrl+N", self._new_chat)
        add("F6", self._next_area)
        add("F1", self._show_shortcuts)
        add("Ctrl+/", self._show_shortcuts)

    def _stop(self) -> None:
        self._desk.stop()
        self._desk.measuring.cancel()

    def _edit_context(self) -> None:
        self._window.show_page("split")
        self._page.trade.context.edit()

    def _choose_model(self) -> None:
        self._window.show_page("split")
        self._page.chooser.open()

    def _new_chat(self) -> None:
        self._window.bring_up()
        self._window.show_page("chat")
        self.new_chat_wanted.emit()

    def _open_split(self) -> None:
        self._window.bring_up()
        self._window.show_page("split")

    def _next_area(self) -> None:
        self._window.focus_next_area()

    def _show_shortcuts(self) -> None:
        ShortcutList(self._window).open()

    # -- closing --------------------------------------------------------------------------------------------------

    def may_close(self) -> bool:
        """Called when the window is closed. True: it may go, and the program ends with it."""
        if self._store.state.running and self._tray.available:
            answer = self._memory.close_answer
            if answer is None:
                closing = self._ask(self._window, self._store.state.residency)
                answer = closing.answer
                if answer is not None and closing.remember:
                    self._memory.close_answer = answer
            if answer is None:
                return False
            if answer == "keep":
                self._window.hide()
                return False
        self.quit()
        return True

    def quit(self) -> None:
        """Stop the engine, make sure it is gone, end the program."""
        if self._over:
            return
        self._over = True
        self._window.remember()
        self._window.hide()
        if not self._engine.close():
            log.error("the engine could not be ended; the run ledger names it for the next start")
        self.quitting.emit()

    # -- tray -----------------------------------------------------------------------------------------------------

    def act(self, action: str) -> None:
        """Do what a line of the tray's menu says."""
        match action:
            case "open":
                self._open_split()
            case "log":
                self._desk.log_wanted.emit(self._store.state.log_file)
            case "new_chat":
                self._new_chat()
            case "copy_api":
                QGuiApplication.clipboard().setText(self._store.state.api_base or "")
            case "restart":
                self._desk.restart()
            case "start":
                self._desk.start()
            case "stop":
                self._desk.stop()
            case "end_engine":
                self._engine.kill()
            case "end":
                self._desk.left_over.end_first()
            case "quit":
                self.quit()

    def _toggle(self) -> None:
        if self._window.isVisible() and not self._window.isMinimized() and self._window.isActiveWindow():
            self._window.hide()
        else:
            self._window.bring_up()

    def _show_tray(self) -> None:
        orphans = self._desk.left_over.orphans
        state = self._store.state
        name = state.model_name if state.running else self._desk.inputs.model_name
        restart = self._desk.restart_words if state.stage is EngineStage.FAILED else ""
        inputs = TrayInputs(state, name, orphans, self._desk.why_not_start, restart)
        self._tray.show_view(tray(inputs))
        self._window.rail.set_badge("split", str(len(orphans)) if orphans else "")
        if orphans and not self._told_orphans and not self._window.isVisible():
            self._tray.tell("A process was left over", "An engine process from an earlier run still holds memory.")
        self._told_orphans = bool(orphans)

    # -- the engine's news ----------------------------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        if state.stage is not self._stage:
            self._stage, self._quarter = state.stage, 0
            self._tell_stage(state)
        changing = state.change is not None and state.request is None
        if changing is not self._changing:
            self._changing = changing
            if changing:
                self._announce("The split is being changed")
        loading = state.loading
        if state.stage is EngineStage.LOADING and loading is not None and loading.layers_total:
            quarter = loading.layers_done * _QUARTER // loading.layers_total
            if quarter > self._quarter:
                self._quarter = quarter
                self._announce(f"Layer {loading.layers_done} of {loading.layers_total} loaded")
        self._show_tray()

    def _tell_stage(self, state: SessionState) -> None:
        match state.stage:
            case EngineStage.READY:
                self._announce("Engine ready")
            case EngineStage.STOPPED:
                self._announce("Engine stopped")
            case EngineStage.FAILED if state.problem is not None:
                self._announce(state.problem.sentence, assertive=True)
                if not self._window.isVisible():
                    self._tray.tell("The engine stopped by an error", state.problem.sentence)

    def _announce(self, text: str, *, assertive: bool = False) -> None:
        event = QAccessibleAnnouncementEvent(self._window, text)
        if assertive:
            event.setPoliteness(QAccessible.AnnouncementPoliteness.Assertive)
        QAccessible.updateAccessibility(event)

    # -- the rail's bars ------------------------------------------------------------------------------------------

    def show_memory(self, use: MemoryUse) -> None:
        """Live readings, once a second; as often the tray looks at its taskbar."""
        self._tray.follow_taskbar()
        self._use = use
        self._show_memory()

    def _show_memory(self) -> None:
        """A simulated GPU shows what the engine says it holds of it."""
        use, state, inputs = self._use, self._store.state, self._desk.inputs
        lines = state.residency.ledger_settled if state.residency is not None else ()
        held = {pool: sum(line.bytes for line in lines if line.pool is pool) for pool in Pool}
        shown = inputs.shown
        simulated = shown.simulated if shown is not None else None
        if simulated is not None:
            use = MemoryUse(use.ram_used, use.ram_total, held[Pool.VRAM], simulated.vram_bytes)
        pinned = use.shared_used if use.shared_used is not None else held[Pool.PINNED]
        quota = inputs.quota if inputs.on_gpu else None
        self._window.rail.show_memory(
            use,
            pinned_bytes=pinned,
            quota_bytes=None if quota is None else quota.pool_bytes,
            assumed=quota is not None and not quota.tried,
        )
