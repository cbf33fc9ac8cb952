"""Looks for left-over engines while none of ours runs, and ends the one that the user points at."""

import threading
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from app.core.session import SessionState
from app.link.background import Background
from app.link.store import SessionStore
from app.orphans.steady import steady
from app.orphans.sweep import EndReport
from app.orphans.verdicts import Orphan, Verdicts
from engine.contract.errors import SplitpinError

SCAN_MS = 10_000


class OrphanWatch(QObject):
    """Scans off the UI thread: at `begin`, whenever the engine has stopped, and every 10 s while it is stopped."""

    verdicts = Signal(object)  # Verdicts, their amounts as they were told before where they are still about right
    ended = Signal(object)  # EndReport; the memory has settled
    failed = Signal(object)  # Problem

    def __init__(
        self,
        scan: Callable[[], Verdicts],
        end: Callable[[Orphan, Callable[[], bool]], EndReport],
        background: Background,
        store: SessionStore,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._scan = scan
        self._end = end
        self._background = background
        self._store = store
        self._scanning = False
        self._told = Verdicts()
        self._ending: set[tuple[int, ...]] = set()
        self._waiting: list[Callable[[Verdicts], None]] = []
        self._running = store.state.running
        self._closing = threading.Event()
        self._timer = QTimer(self)
        self._timer.setInterval(SCAN_MS)
        self._timer.timeout.connect(self.scan)
        store.changed.connect(self._follow)

    def begin(self) -> None:
        """Scan now, and go on while the engine is stopped."""
        self.scan()
        if not self._running:
            self._timer.start()

    def scan(self) -> None:
        """Scan once; `verdicts` follows. Calls that come while one runs share its answer."""
        if self._scanning:
            return
        self._scanning = True
        self._background.run(self._scan, self._found, self._lost)

    def scan_then(self, go_on: Callable[[Verdicts], None]) -> None:
        """Scan, then call `go_on` with fresh verdicts: for the check before a start.

        If the scan fails, `failed` tells why and `go_on` gets empty verdicts: a process table that cannot be read
        must not keep anybody from starting an engine.
        """
        self._waiting.append(go_on)
        self.scan()

    def end(self, orphan: Orphan) -> None:
        """End a left-over tree and wait for its memory; `ended` or `failed` follows, then new verdicts."""
        if orphan.pids in self._ending:
            return
        self._ending.add(orphan.pids)

        def done(report: EndReport) -> None:
            self._ending.discard(orphan.pids)
            self.ended.emit(report)
            self.scan()

        def failed(error: SplitpinError) -> None:
            self._ending.discard(orphan.pids)
            self.failed.emit(error.problem)
            self.scan()

        self._background.run(lambda: self._end(orphan, self._closing.is_set), done, failed)

    def close(self) -> None:
        """No more scans, and no more waiting for memory."""
        self._closing.set()
        self._timer.stop()
        self._store.changed.disconnect(self._follow)

    def _found(self, verdicts: Verdicts) -> None:
        self._scanning = False
        self._told = steady(self._told, verdicts)
        self.verdicts.emit(self._told)
        self._answer(verdicts)

    def _lost(self, error: SplitpinError) -> None:
        self._scanning = False
        self.failed.emit(error.problem)
        self._answer(Verdicts())

    def _answer(self, verdicts: Verdicts) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on(verdicts)

    def _follow(self, state: SessionState) -> None:
        if state.running == self._running:
            return
        self._running = state.running
        if state.running:
            self._timer.stop()
        else:
            self.scan()
            self._timer.start()
