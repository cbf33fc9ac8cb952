"""What buttons with their own paint share: a spoken name, hovering, and a ring for the keyboard only."""

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFocusEvent, QPainter, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget
from typing_extensions import override

from app.ui.theme import Theme, color
from app.ui.widgets.focus import came_by_keyboard


class PaintedButton(QAbstractButton):
    """Derive, and paint with `paint_ring` as the last step."""

    def __init__(self, theme: Theme, name: str, *, focus: Qt.FocusPolicy, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._ring = False
        self.setAccessibleName(name)
        self.setFocusPolicy(focus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    @override
    def focusInEvent(self, event: QFocusEvent) -> None:
        self._ring = came_by_keyboard(event)
        super().focusInEvent(event)

    def paint_ring(self, painter: QPainter, box: QRectF, radius: float) -> None:
        """The ring around `box`, if the keyboard is here and came by a key."""
        if self.hasFocus() and self._ring:
            painter.setPen(QPen(color(self._theme.tokens.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box, radius, radius)
