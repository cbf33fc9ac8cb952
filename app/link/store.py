"""The one place where the engine's state changes, and the signal that tells of it."""

from PySide6.QtCore import QObject, Signal

from app.core.session import Happening, SessionState, step


class SessionStore(QObject):
    """Holds the state; lives on the UI thread."""

    changed = Signal(object)  # SessionState

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._state = SessionState()

    @property
    def state(self) -> SessionState:
        return self._state

    def apply(self, happening: Happening) -> None:
        """Take one step; `changed` is emitted if it led somewhere."""
        new = step(self._state, happening)
        if new != self._state:
            self._state = new
            self.changed.emit(new)
