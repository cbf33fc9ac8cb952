"""The state of the engine. Shape and word carry it; the colour repeats it."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget
from typing_extensions import override

from app.ui.split_view import PillView
from app.ui.theme import Theme, Weight, color, ui_font
from app.ui.widgets.turning import Turning

_ROUND_MS = 1_100
_OPEN_SHARE = 0.3  # of an arc that turns


class Pill(QWidget):
    """Paints a `PillView`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._view = PillView("Stopped")
        self._turning = Turning(theme, self, round_ms=_ROUND_MS)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Engine state: Stopped")

    def show_pill(self, view: PillView) -> None:
        if view != self._view:
            self._view = view
            self.setAccessibleName(f"Engine state: {view.text}")
            self._turning.want(view.share is None)
            self.updateGeometry()
            self.update()

    @override
    def sizeHint(self) -> QSize:
        metrics = QFontMetricsF(ui_font(12, Weight.Medium))
        return QSize(round(metrics.horizontalAdvance(self._view.text)) + 39, 28)

    @override
    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tokens = self._theme.tokens
        tone = getattr(tokens, self._view.tone)
        body = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(QPen(color(tone, 110), 1))
        painter.setBrush(color(tone, 26))
        painter.drawRoundedRect(body, 14, 14)
        self._paint_shape(painter, QPointF(15.5, body.center().y()), color(tone))
        painter.setFont(ui_font(12, Weight.Medium))
        painter.setPen(color(tokens.text))
        painter.drawText(body.adjusted(26, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, self._view.text)
        painter.end()

    def _paint_shape(self, painter: QPainter, centre: QPointF, tone: QColor) -> None:
        painter.setPen(QPen(tone, 1.8))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        match self._view.shape:
            case "ring":
                painter.drawEllipse(centre, 3.6, 3.6)
            case "dot":
                painter.setBrush(tone)
                painter.drawEllipse(centre, 3.6, 3.6)
            case "arc":
                box = QRectF(centre.x() - 4, centre.y() - 4, 8, 8)
                share = _OPEN_SHARE if self._view.share is None else max(0.08, self._view.share)
                painter.drawArc(box, round((90 - 360 * self._turning.turn) * 16), -round(share * 360 * 16))
                faint = QColor(tone)
                faint.setAlpha(70)
                painter.setPen(QPen(faint, 1.8))
                painter.drawEllipse(box)
            case "triangle":
                painter.setBrush(tone)
                painter.setPen(Qt.PenStyle.NoPen)
                corners = [QPointF(0, -5), QPointF(5.4, 4.4), QPointF(-5.4, 4.4)]
                painter.drawPolygon(QPolygonF([centre + corner for corner in corners]))
            case "cross":
                painter.drawLine(centre + QPointF(-3, -3), centre + QPointF(3, 3))
                painter.drawLine(centre + QPointF(3, -3), centre + QPointF(-3, 3))
