"""Live readings for the foot of the rail: once a second while the window is shown, every 5 s in the tray."""

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from app.link.background import Background
from engine.contract.errors import SplitpinError
from engine.system.protocols import LiveMemory, MemoryUse

SHOWN_MS, HIDDEN_MS = 1_000, 5_000


class LiveBars(QObject):
    """Reads off the UI thread.

    Signals:
        read: a new reading (MemoryUse).
    """

    read = Signal(object)

    def __init__(
        self, open_memory: Callable[[], LiveMemory], background: Background, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._open = open_memory
        self._memory: LiveMemory | None = None
        self._background = background
        self._reading = False
        self._timer = QTimer(self)
        self._timer.setInterval(SHOWN_MS)
        self._timer.timeout.connect(self.sample)

    def begin(self) -> None:
        self.sample()
        self._timer.start()

    def set_shown(self, shown: bool) -> None:
        """Whether anybody looks."""
        self._timer.setInterval(SHOWN_MS if shown else HIDDEN_MS)
        if shown and self._timer.isActive():
            self.sample()

    def sample(self) -> None:
        """One reading; calls that come while one is under way are left out."""
        if not self._reading:
            self._reading = True
            self._background.run(self._read, self._got, self._failed)

    def close(self) -> None:
        """No more readings; lets go of the driver. Call after the background has ended."""
        self._timer.stop()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _read(self) -> MemoryUse:
        if self._memory is None:
            self._memory = self._open()
        return self._memory.read()

    def _got(self, use: MemoryUse) -> None:
        self._reading = False
        self.read.emit(use)

    def _failed(self, error: SplitpinError) -> None:
        self._reading = False  # logged by the background; the bars keep their last reading
