"""Keeps one widget in the middle of the width it gets, never wider than a limit."""

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget
from typing_extensions import override


class Centred(QWidget):
    """`most_px` limits the child, `margin_px` is left free at both sides."""

    def __init__(self, child: QWidget, *, most_px: int, margin_px: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._most_px = most_px
        self._margin_px = margin_px
        self._row = QHBoxLayout(self)
        self._row.addWidget(child)
        self._place(self.width())

    @override
    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place(event.size().width())
        super().resizeEvent(event)

    def _place(self, width_px: int) -> None:
        side = max(self._margin_px, (width_px - self._most_px) // 2)
        self._row.setContentsMargins(side, 0, side, 0)
