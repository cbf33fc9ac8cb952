"""A QSlider with its own paint: one tick a stop, shaded zones, named limits.

Keyboard, wheel and accessibility come with QSlider; only painting and the mouse are ours, because a click jumps to
where it was made.
"""

from PySide6.QtCore import QEasingCurve, QPointF, QRectF, QSize, Qt, QVariantAnimation
from PySide6.QtGui import QEnterEvent, QFocusEvent, QFontMetricsF, QMouseEvent, QPainter, QPaintEvent, QPen, QWheelEvent
from PySide6.QtWidgets import QSlider, QWidget
from typing_extensions import override

from app.ui.split_view import Marker
from app.ui.theme import Theme, Weight, color, ui_font
from app.ui.tokens import Tokens
from app.ui.widgets.focus import came_by_keyboard
from app.ui.widgets.tier_paint import rounded

_PAD_PX = 13  # the focus ring needs it at both ends
_TRACK_Y_PX = 14.0
_TRACK_PX = 6.0
_RUNNING_PX = 5.0
_REST, _HOVER, _DOWN = 0.52, 0.64, 0.42  # share of the ring that the dot fills


class SplitSlider(QSlider):
    """Markers stand halfway before their stop; the track is shaded from there on. `thin` has neither."""

    def __init__(self, theme: Theme, *, thin: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._theme = theme
        self._thin = thin
        self._markers: tuple[Marker, ...] = ()
        self._assumed = False
        self._unmet = False
        self._running: int | None = None
        self._ring = False
        self._dot = _REST
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSingleStep(1)
        self.setPageStep(4)
        self.setMouseTracking(True)
        self._grow = QVariantAnimation(self)
        self._grow.setDuration(140)
        self._grow.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._grow.valueChanged.connect(self._grown)

    def set_limits(
        self, markers: tuple[Marker, ...], *, assumed: bool = False, unmet: bool = False, running: int | None = None
    ) -> None:
        """`assumed` dashes the lines; `unmet` hollows the handle: no stop gives what was wished for; at `running` a
        small ring stands for the split that runs."""
        if (markers, assumed, unmet, running) != (self._markers, self._assumed, self._unmet, self._running):
            if bool(markers) != bool(self._markers):
                self.updateGeometry()
            self._markers, self._assumed, self._unmet, self._running = markers, assumed, unmet, running
            self.update()

    @override
    def sizeHint(self) -> QSize:
        return QSize(300, 28 if self._thin else 54 if self._markers else 34)

    @override
    def minimumSizeHint(self) -> QSize:
        return QSize(120, self.sizeHint().height())

    def x_of(self, value: float) -> float:
        """Where a value lies, in pixels from the left."""
        span = max(1, self.maximum() - self.minimum())
        return _PAD_PX + (self.width() - 2 * _PAD_PX) * (value - self.minimum()) / span

    def _move_to(self, x: float) -> None:
        span = max(1, self.maximum() - self.minimum())
        share = (x - _PAD_PX) / max(1, self.width() - 2 * _PAD_PX)
        self.setSliderPosition(round(share * span) + self.minimum())

    @override
    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self.setSliderDown(True)
            self._animate(_DOWN)
            self._move_to(event.position().x())

    @override
    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self.isSliderDown():
            self._move_to(event.position().x())

    @override
    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self.setSliderDown(False)
        self._animate(_HOVER if self.underMouse() else _REST)

    @override
    def wheelEvent(self, event: QWheelEvent) -> None:
        turned = event.angleDelta().y()
        if not self.hasFocus() or not turned:  # a page that is scrolled must not change the split
            event.ignore()
            return
        up, down = QSlider.SliderAction.SliderSingleStepAdd, QSlider.SliderAction.SliderSingleStepSub
        self.triggerAction(up if turned > 0 else down)  # one stop a notch, where QSlider takes three

    @override
    def enterEvent(self, event: QEnterEvent) -> None:
        self._animate(_HOVER)

    @override
    def leaveEvent(self, event: object) -> None:
        self._animate(_REST)

    @override
    def focusInEvent(self, event: QFocusEvent) -> None:
        self._ring = came_by_keyboard(event)
        super().focusInEvent(event)

    def _animate(self, share: float) -> None:
        self._grow.stop()
        if self._theme.animated and self.isVisible():
            self._grow.setStartValue(self._dot)
            self._grow.setEndValue(share)
            self._grow.start()
        else:
            self._grown(share)

    def _grown(self, share: float) -> None:
        self._dot = share
        self.update()

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tokens = self._theme.tokens
        self._paint_track(painter, tokens)
        if not self._thin:
            self._paint_ticks(painter, tokens)
            self._paint_markers(painter, tokens)
            self._paint_running(painter, tokens)
        self._paint_handle(painter, tokens)
        painter.end()

    def _marker_x(self, stop: int) -> float:
        """Halfway before the stop; at the end of the track for a stop behind the last one."""
        if stop > self.maximum():
            return self.x_of(self.maximum())
        return self.x_of(stop - 0.5) if stop > self.minimum() else self.x_of(self.minimum())

    def _paint_track(self, painter: QPainter, tokens: Tokens) -> None:
        left, right = _PAD_PX - 3.0, self.width() - _PAD_PX + 3.0
        track = QRectF(left, _TRACK_Y_PX - _TRACK_PX / 2, right - left, _TRACK_PX)
        path = rounded(track, _TRACK_PX / 2)
        painter.fillPath(path, color(tokens.free if self.isEnabled() or tokens.name != "contrast" else tokens.raised))
        painter.save()
        painter.setClipPath(path)
        edges = [*(self._marker_x(marker.stop) for marker in self._markers), right]
        for marker, start, end in zip(self._markers, edges, edges[1:], strict=False):
            shade = tokens.locked if marker.kind == "pin" else tokens.pageable
            start = left if marker.stop <= self.minimum() else start
            painter.fillRect(QRectF(start, track.top(), end - start, _TRACK_PX), color(shade, 115))
        done = self.x_of(self.sliderPosition()) - left
        accent = tokens.accent if self.isEnabled() else tokens.text3
        painter.fillRect(QRectF(left, track.top(), done, _TRACK_PX), color(accent))
        painter.restore()

    def _paint_ticks(self, painter: QPainter, tokens: Tokens) -> None:
        painter.setPen(QPen(color(tokens.border_strong), 1))
        span = self.maximum() - self.minimum()
        if span <= 0:
            return
        every = 1 if (self.width() - 2 * _PAD_PX) / span >= 7 else 5
        for value in range(self.minimum(), self.maximum() + 1, every):
            x = self.x_of(value)
            painter.drawLine(QPointF(x, _TRACK_Y_PX + 9), QPointF(x, _TRACK_Y_PX + 13))

    def _paint_markers(self, painter: QPainter, tokens: Tokens) -> None:
        font = ui_font(11, Weight.Medium)
        painter.setFont(font)
        for marker, box in zip(self._markers, self.label_boxes(), strict=True):
            pen = QPen(color(tokens.warn if marker.kind == "pin" else tokens.error), 1.6)
            x = self._marker_x(marker.stop)
            if self._assumed:
                pen.setDashPattern([2, 2])
            painter.setPen(pen)
            painter.drawLine(QPointF(x, _TRACK_Y_PX - 9), QPointF(x, _TRACK_Y_PX + 20))
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, marker.label)

    def label_boxes(self) -> list[QRectF]:
        """Where the marker labels stand: under their lines, moved apart and kept inside the widget."""
        metrics = QFontMetricsF(ui_font(11, Weight.Medium))
        widths = [metrics.horizontalAdvance(marker.label) + 6 for marker in self._markers]
        lefts: list[float] = []
        free_from = 0.0
        for marker, width in zip(self._markers, widths, strict=True):
            wanted = max(self._marker_x(marker.stop) - width / 2, free_from, 0.0)
            lefts.append(wanted)
            free_from = wanted + width + 8
        free_until = float(self.width())
        for i in reversed(range(len(lefts))):
            lefts[i] = max(0.0, min(lefts[i], free_until - widths[i]))
            free_until = lefts[i] - 8
        return [QRectF(left, _TRACK_Y_PX + 22, width, 18) for left, width in zip(lefts, widths, strict=True)]

    def _paint_running(self, painter: QPainter, tokens: Tokens) -> None:
        if self._running is not None and self._running != self.sliderPosition():
            painter.setPen(QPen(color(tokens.text2), 1.6))
            painter.setBrush(color(tokens.surface))
            painter.drawEllipse(QPointF(self.x_of(self._running), _TRACK_Y_PX), _RUNNING_PX, _RUNNING_PX)

    def _paint_handle(self, painter: QPainter, tokens: Tokens) -> None:
        radius = 8.0 if self._thin else 10.0
        centre = QPointF(self.x_of(self.sliderPosition()), _TRACK_Y_PX)
        edge = color("#000000", 90) if tokens.name == "dark" else color(tokens.border_strong)
        painter.setPen(QPen(edge, 1))
        painter.setBrush(color(tokens.handle))
        painter.drawEllipse(centre, radius, radius)
        accent = color(tokens.accent if self.isEnabled() else tokens.text3)
        if self._unmet:
            painter.setPen(QPen(color(tokens.error), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
        else:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(accent)
        painter.drawEllipse(centre, radius * self._dot, radius * self._dot)
        if self.hasFocus() and self._ring:
            painter.setPen(QPen(color(tokens.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(centre, radius + 2, radius + 2)
