"""An on/off switch with its text."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget
from typing_extensions import override

from app.ui.theme import Theme, color, ui_font
from app.ui.widgets.painted_button import PaintedButton


class Switch(PaintedButton):
    """A checkable button painted as a switch."""

    def __init__(self, theme: Theme, text: str, parent: QWidget | None = None) -> None:
        super().__init__(theme, text, focus=Qt.FocusPolicy.StrongFocus, parent=parent)
        self.setText(text)
        self.setCheckable(True)

    @override
    def sizeHint(self) -> QSize:
        return QSize(round(QFontMetricsF(ui_font(13)).horizontalAdvance(self.text())) + 50, 30)

    @override
    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        t, on, alive = self._theme.tokens, self.isChecked(), self.isEnabled()
        body = QRectF(2, (self.height() - 20) / 2, 38, 20)
        fill = (t.accent if alive else t.text3) if on else t.inset
        painter.setPen(QPen(color(fill if on else t.border_strong), 1.2))
        painter.setBrush(color(fill))
        painter.drawRoundedRect(body, 10, 10)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color((t.on_accent if alive else t.surface) if on else t.text2))
        radius = 6.5 if self.underMouse() and alive else 6.0
        painter.drawEllipse(QPointF(body.right() - 10 if on else body.left() + 10, body.center().y()), radius, radius)
        painter.setPen(color(t.text if alive else t.text3))
        painter.setFont(ui_font(13))
        painter.drawText(QRectF(48, 0, self.width(), self.height()), Qt.AlignmentFlag.AlignVCenter, self.text())
        self.paint_ring(painter, body.adjusted(-1, -3, 1, 3), 12)
        painter.end()
