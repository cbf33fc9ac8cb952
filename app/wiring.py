"""The composition root: builds each long-lived object once and hands it on. Nothing looks anything up."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QObject, QProcess, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QApplication

from app.chat.store import ChatStore
from app.core.learned import LearnedStore
from app.core.library import Library, ModelEntry
from app.core.shape_cache import ShapeCache
from app.link.background import Background
from app.link.engine_process import EngineProcess
from app.link.learning import Learning
from app.link.measurement import Measurement
from app.link.orphan_watch import OrphanWatch
from app.link.plan_apply import PlanApply
from app.link.single_instance import SingleInstance
from app.link.store import SessionStore
from app.link.stream import ChatStream
from app.logs import LOG_NAME
from app.orphans.memory_return import MemoryReturn
from app.paths import APP_NAME, Profile, demo_model_dir
from app.planning.wishes import Wishes
from app.settings import SettingsFile
from app.supervision.ledger import RunLedger
from app.supervision.may_measure import refuse_measuring
from app.supervision.scan import Scanner
from app.ui.close_question import ask_closing
from app.ui.live_bars import LiveBars
from app.ui.main_window import MainWindow
from app.ui.notices import Notice, of_problem
from app.ui.pages.chat_page import ChatPage
from app.ui.pages.split_page import SplitPage
from app.ui.pick_folder import PickFolder, pick_folder
from app.ui.settings_keeper import SettingsKeeper
from app.ui.shell import Shell
from app.ui.split_desk import SplitDesk
from app.ui.theme import Theme
from app.ui.tray import Tray
from app.ui.widgets.rail import RailEntry
from app.ui.window_memory import WindowMemory
from engine.contract.errors import ModelFolderError, Problem, UsageError
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, SimulatedGpu
from engine.contract.units import GIB
from engine.system.protocols import LiveMemory
from engine.system.recorded import RecordedMachine, RecordedMemory
from engine.system.select import live_memory, machine_probe, page_file_settings

log = logging.getLogger(__name__)

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What the command line asks of the window."""

    profile: Profile
    machine: Path | None = None
    engine_argv: Sequence[str] | None = None
    model: Path | None = None
    simulated_gpu: SimulatedGpu | None = None
    demo_dir: Path | None = field(default_factory=demo_model_dir)


class App(QObject):
    """All long-lived objects of one window. `begin` shows it; `close` ends everything, the engine first."""

    def __init__(self, qt: QApplication, options: LaunchOptions, *, pick: PickFolder = pick_folder) -> None:
        """Build everything; nothing runs yet.

        Raises:
            ModelFolderError: `--model` names no model folder.
            RecordedFileError: `--machine` names no recorded machine.
            ChatStoreError: the chats cannot be opened, for example because another Splitpin has them open.
        """
        super().__init__()
        self._qt = qt
        self._pick = pick
        self._closed = False
        profile = options.profile
        self._log_file = profile.logs_dir / LOG_NAME
        loaded = SettingsFile(profile.settings_file).load()
        self.library = Library(tuple(Path(folder) for folder in loaded.settings.model_folders), options.demo_dir)
        if options.model is not None:
            self.library = self.library.add(options.model)
        recorded = None if options.machine is None else RecordedMachine(options.machine).read()
        self._chats, set_aside = ChatStore.open_or_set_aside(profile.chats_file)

        self.keeper = SettingsKeeper(SettingsFile(profile.settings_file), loaded.settings, self)
        if options.model is not None:
            self._keep_library()
        self.theme = Theme(qt, loaded.settings.theme)
        self.background = Background(self, threads=3)
        self.store = SessionStore(self)
        run_ledger = RunLedger(profile.runs_dir)
        self.engine = EngineProcess(self.store, run_ledger, engine_argv=options.engine_argv, parent=self)
        scanner = Scanner(run_ledger)
        self.watch = OrphanWatch(scanner.scan, scanner.end, self.background, self.store, self)
        read = machine_probe().read if recorded is None else lambda: recorded
        self.learning = Learning(read, LearnedStore(profile.learned_file), self.background, self.store, self)
        self.measurement = Measurement(
            self.learning, self.background, refuse=partial(refuse_measuring, scanner), parent=self
        )
        self.live = LiveBars(_live_memory(recorded), self.background, self)

        self.split_page = SplitPage(self.theme)
        self.chat_page = ChatPage(self.theme, self._chats, ChatStream(self))
        memory = WindowMemory(profile.folder / "window.ini")
        self.window = MainWindow(
            self.theme,
            (
                (RailEntry("split", "split", "Split"), self.split_page),
                (RailEntry("chat", "chat", "Chat"), self.chat_page),
            ),
            memory,
        )
        self.desk = SplitDesk(
            self.split_page,
            self.store,
            self.watch,
            self.background,
            self.measurement,
            PlanApply(self.store, self),
            read_facts=self.learning.read_facts,
            shapes=ShapeCache(profile.shapes_file),
            simulated_gpu=options.simulated_gpu,
            can_open_page_file=page_file_settings() is not None,
            parent=self,
        )
        if options.simulated_gpu is None:
            self.desk.limit_pins(loaded.settings.pin_cap_bytes)
        self.tray = Tray(self.theme, parent=self)
        self.shell = Shell(
            self.window,
            self.split_page,
            self.desk,
            self.store,
            self.engine,
            self.tray,
            memory,
            ask=partial(ask_closing, self.theme),
            parent=self,
        )
        self._connect()
        wanted = options.model or (Path(loaded.settings.last_model) if loaded.settings.last_model else None)
        self._first = None if wanted is None else wanted.expanduser().absolute()
        for problem in (loaded.problem, set_aside.problem if set_aside is not None else None):
            if problem is not None:
                self.desk.report(of_problem(problem, severity="warn"))

    def _connect(self) -> None:
        self.store.changed.connect(self.chat_page.show_session)
        self.chat_page.start_requested.connect(self.desk.start)
        self.chat_page.end_requested.connect(self.engine.kill)
        self.engine.logged.connect(self.chat_page.note_log)
        self.desk.launch_wanted.connect(self._launch)
        self.desk.stop_wanted.connect(self.engine.stop)
        self.desk.end_wanted.connect(self.engine.kill)
        self.desk.port_wished.connect(self._port_wished)
        self.engine.memory_returned.connect(self._memory_returned)
        self.desk.add_model_wanted.connect(self._add_model)
        self.desk.model_changed.connect(self._model_changed)
        self.desk.wishes_changed.connect(self._wishes_changed)
        self.desk.remove_model_wanted.connect(self._remove_model)
        self.desk.log_wanted.connect(lambda file: QDesktopServices.openUrl(QUrl.fromLocalFile(file)))
        self.learning.learned.connect(self.desk.show_known)
        self.desk.page_file_wanted.connect(_open_page_file_settings)
        self.desk.pins_limited.connect(lambda most_bytes: self.keeper.change(pin_cap_bytes=most_bytes))
        self.live.read.connect(self.shell.show_memory)
        self.window.shown_changed.connect(self.live.set_shown)
        self.shell.new_chat_wanted.connect(self.chat_page.new_chat)
        self.shell.quitting.connect(self._quit)
        self.keeper.failed.connect(lambda problem: self.desk.report(of_problem(problem, severity="warn")))
        self._qt.aboutToQuit.connect(self.close)

    def begin(self) -> None:
        """Show the window, then find out about everything else."""
        self.window.show()
        self.tray.begin()
        self._show_library(self._first)
        self.desk.read_machine()
        self.watch.begin()
        self.live.begin()

    def report_fault(self, kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
        """A fault of Splitpin that nothing caught: into the log, and in a sentence on the page."""
        if issubclass(kind, KeyboardInterrupt):
            self._qt.quit()
            return
        log.critical("unexpected", exc_info=(kind, fault, trace))
        if not self._closed:
            sentence = f"Something unexpected happened: {kind.__name__}: {fault}."
            fix = f"The details are in {self._log_file}. If Splitpin behaves oddly now, start it again."
            self.desk.report(of_problem(Problem(kind="unexpected", sentence=sentence, fix=fix)))

    def close(self) -> None:
        """End everything that runs, the engine first. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.chat_page.save_now()
        self.shell.quit()
        self.desk.close()
        self.store.blockSignals(True)  # what the engine's threads still have queued has nobody to show it to
        self.watch.close()
        self.background.close()
        self.live.close()
        self.keeper.write()
        self.tray.close()
        self.window.close()
        self._chats.close()

    def _quit(self) -> None:
        self.close()
        self._qt.quit()

    def _launch(self, plan: MemoryPlan) -> None:
        self.engine.start(plan, port=self.keeper.settings.port, called=self.desk.inputs.model_name or "")

    def _port_wished(self, port: int) -> None:
        self.keeper.change(port=port)
        self.desk.start()

    def _memory_returned(self, back: MemoryReturn) -> None:
        """After the engine's end; what hardly shows is not worth a notice."""
        if not back.settled:
            self.desk.report(Notice("warn", "The engine is gone, but its memory is not back", back.words, about="back"))
        elif max(back.vram_bytes or 0, back.ram_bytes or 0) >= GIB:
            self.desk.report(Notice("ok", f"The engine stopped. {back.words}".removesuffix("."), about="back"))

    def open_model(self, folder: Path) -> None:
        """Choose the model in a folder, which a second start has named; it is in the list from then on."""
        self.window.show_page("split")
        self._take_model(folder)
        entry = self.library.find(folder)
        if entry is not None and not self.desk.inputs.adjustable:
            words = f"{entry.name} is in the list; it can be chosen when the engine is ready or stopped"
            self.desk.report(Notice("info", words, about="open"))

    def _add_model(self) -> None:
        folder = self._pick(self.window)
        if folder is not None:
            self._take_model(folder)

    def _take_model(self, folder: Path) -> None:
        try:
            self.library = self.library.add(folder)
        except ModelFolderError as error:
            self.desk.report(of_problem(error.problem, severity="warn"))
            return
        self._library_changed(folder.expanduser().absolute())

    def _remove_model(self, folder: Path) -> None:
        self.library = self.library.remove(folder)
        self._library_changed(None)

    def _library_changed(self, chosen: Path | None) -> None:
        self._keep_library()
        self._show_library(chosen)

    def _keep_library(self) -> None:
        self.keeper.change(model_folders=tuple(str(kept) for kept in self.library.folders))

    def _show_library(self, chosen: Path | None) -> None:
        saved = {Path(folder): wishes for folder, wishes in self.keeper.settings.wishes.items()}
        self.desk.show_library(self.library, saved, chosen)

    def _model_changed(self, entry: ModelEntry) -> None:
        self.keeper.change(last_model=str(entry.folder))

    def _wishes_changed(self, folder: Path, wishes: Wishes) -> None:
        self.keeper.change(wishes={**self.keeper.settings.wishes, str(folder): wishes})


def _open_page_file_settings() -> None:
    program = page_file_settings()
    if program is not None and not QProcess.startDetached(program, []):
        log.warning("%s could not be started", program)


def _live_memory(recorded: HardwareFacts | None) -> Callable[[], LiveMemory]:
    return live_memory if recorded is None else lambda: RecordedMemory(recorded)


def open_window(options: LaunchOptions) -> int:
    """Open the window and stay until the program is quit; returns the exit code. A second one raises the first.

    Raises:
        AlreadyOpenError: the profile is open in a window that does not answer.
        SplitpinError: the options name something that is not there.
    """
    _check(options)
    qt = QApplication([APP_NAME])
    qt.setApplicationName(APP_NAME)
    qt.setDesktopFileName(APP_NAME.lower())
    qt.setQuitOnLastWindowClosed(False)  # the tray may hold the window
    instance = SingleInstance(options.profile.folder)
    if not instance.acquire():
        instance.call_first(None if options.model is None else options.model.expanduser().absolute())
        log.info("Splitpin is open already; its window was raised")
        return 0
    try:
        return _run(qt, App(qt, options), instance)
    finally:
        instance.close()


def _run(qt: QApplication, app: App, instance: SingleInstance) -> int:
    sys.excepthook = app.report_fault  # of a slot: Qt goes on, and a program without a console has nowhere to print
    instance.raise_wanted.connect(app.window.bring_up)
    instance.model_wanted.connect(app.open_model)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: qt.quit())  # heard at the next reading of the bars, within a second
    app.begin()
    return qt.exec()


def _check(options: LaunchOptions) -> None:
    """What can be refused before there is a window. Qt itself would abort the process where there is no display.

    Raises:
        ModelFolderError, RecordedFileError: a path names nothing of the kind.
        UsageError: there is no display.
    """
    if options.model is not None:
        Library().add(options.model)
    if options.machine is not None:
        RecordedMachine(options.machine).read()
    if sys.platform == "linux" and not any(os.environ.get(name) for name in _DISPLAYS):
        raise UsageError(
            "There is no display to open a window on.",
            "Start Splitpin in a desktop session, or use it without a window: python -m app --help.",
        )
