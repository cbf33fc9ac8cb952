"""A small button that is only an icon. Its name is spoken and is its tool tip."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget
from typing_extensions import override

from app.ui import icons
from app.ui.theme import Theme, color
from app.ui.widgets.painted_button import PaintedButton
from app.ui.widgets.tier_paint import rounded


class IconButton(PaintedButton):
    """30 px square, icon 16 px."""

    def __init__(self, theme: Theme, icon: str, name: str, parent: QWidget | None = None) -> None:
        super().__init__(theme, name, focus=Qt.FocusPolicy.TabFocus, parent=parent)
        self._icon = icon
        self.setToolTip(name)
        self.setFixedSize(self.sizeHint())

    @override
    def sizeHint(self) -> QSize:
        return QSize(30, 30)

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        t = self._theme.tokens
        body = QRectF(self.rect()).adjusted(1, 1, -1, -1)
        hot = self.isEnabled() and self.underMouse()
        if hot:
            painter.fillPath(rounded(body, 6), color(t.text, 36 if self.isDown() else 22))
        tint = t.text if hot else t.text2 if self.isEnabled() else t.text3
        painter.drawPixmap(QPointF(7, 7), icons.pixmap(self._icon, tint, 16, self.devicePixelRatioF()))
        self.paint_ring(painter, body, 6)
        painter.end()
