"""The keyboard: focus rings are for it only, and Tab goes through a page as one reads it."""

from collections.abc import Iterable

from PySide6.QtCore import Qt
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QWidget

_KEYBOARD = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)


def came_by_keyboard(event: QFocusEvent) -> bool:
    """Whether the focus moved by Tab, Backtab or a shortcut."""
    return event.reason() in _KEYBOARD


def focusable(root: QWidget) -> list[QWidget]:
    """What inside `root` the Tab key can reach, in the order it was built."""
    return [child for child in root.findChildren(QWidget) if _takes_tab(child)]


def last_in(root: QWidget) -> QWidget:
    """Where the Tab key leaves `root`."""
    return [root, *focusable(root)][-1]


def tab_after(anchor: QWidget, widgets: Iterable[QWidget]) -> None:
    """Let Tab go from `anchor` through `widgets`: Qt puts what is built later behind everything else.

    Qt orders only what takes the keyboard, so an anchor that does not stands for what comes before it.
    """
    start = anchor
    while not _takes_tab(start):
        before = start.previousInFocusChain()
        if before is None or before is anchor:
            return  # nothing in this window takes the keyboard
        start = before
    for widget in widgets:
        if _takes_tab(widget):
            QWidget.setTabOrder(start, widget)
            start = widget


def _takes_tab(widget: QWidget) -> bool:
    return bool(widget.focusPolicy() & Qt.FocusPolicy.TabFocus)
