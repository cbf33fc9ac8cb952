"""Focus rings are for the keyboard only."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QFocusEvent

_KEYBOARD = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)


def came_by_keyboard(event: QFocusEvent) -> bool:
    """Whether the focus moved by Tab, Backtab or a shortcut."""
    return event.reason() in _KEYBOARD
