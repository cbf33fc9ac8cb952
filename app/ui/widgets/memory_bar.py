"""Stacked bytes against one limit: title, bar, and what each part is."""

from collections.abc import Iterator

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget
from typing_extensions import override

from app.ui.split_view import Bar, Segment
from app.ui.theme import Theme, Weight, color, ui_font
from app.ui.tokens import Tokens
from app.ui.widgets.tier_paint import paint_hollow, paint_tier, rounded
from app.ui.wording import exact_gib, gib_of
from engine.contract.plan import Tier
from engine.contract.units import gib

_BAR = (21.0, 16.0)  # top, height
_LEGEND_Y_PX = 40.0
_SWATCH_PX, _GAP_PX, _LEAST_GAP_PX, _DOTS_PX = 15.0, 17.0, 9.0, 12.0
_EMPTY = Bar("", (), 0)


class MemoryBar(QWidget):
    """Paints a `Bar`. The line across it is where the plan must end; segments beyond the total are marked red."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._bar = _EMPTY
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_bar(self, bar: Bar) -> None:
        if bar == self._bar:
            return
        self._bar = bar
        parts = ", ".join(f"{segment.name} {gib(segment.bytes)}" for segment in bar.segments if segment.bytes)
        self.setAccessibleName(f"{bar.title} memory")
        self.setAccessibleDescription(
            f"{gib(bar.used_bytes)} of {gib(bar.total_bytes)}: {parts}{'. Over the limit.' if bar.over else ''}"
        )
        self.update()

    @override
    def sizeHint(self) -> QSize:
        return QSize(400, 59)

    @override
    def minimumSizeHint(self) -> QSize:
        return QSize(240, 59)

    def _scale_bytes(self) -> int:
        return max(1, self._bar.total_bytes, self._bar.used_bytes)

    def _placed(self) -> Iterator[tuple[Segment, QRectF]]:
        x = 0.0
        for segment in self._bar.segments:
            width = self.width() * segment.bytes / self._scale_bytes()
            if segment.bytes > 0:
                yield segment, QRectF(x, _BAR[0], max(1.0, width - 1.5), _BAR[1])
            x += width

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tokens = self._theme.tokens
        self._paint_title(painter, tokens)
        self._paint_bar(painter, tokens)
        self._paint_legend(painter, tokens)
        painter.end()

    def _paint_title(self, painter: QPainter, tokens: Tokens) -> None:
        bar = self._bar
        strong = ui_font(13, Weight.DemiBold)
        metrics = QFontMetricsF(strong)
        middle = Qt.AlignmentFlag.AlignVCenter
        right = gib_of(bar.used_bytes, bar.total_bytes)
        right_width = metrics.horizontalAdvance(right) + 2
        painter.setFont(strong)
        painter.setPen(color(tokens.text))
        painter.drawText(QRectF(0, 0, self.width(), 18), middle, bar.title)
        painter.setPen(color(tokens.error if bar.over else tokens.text))
        painter.drawText(QRectF(0, 0, self.width(), 18), middle | Qt.AlignmentFlag.AlignRight, right)
        left = metrics.horizontalAdvance(bar.title) + 10
        small = ui_font(12)
        room = self.width() - left - right_width - 10
        note = QFontMetricsF(small).elidedText(bar.note, Qt.TextElideMode.ElideRight, room)
        painter.setFont(small)
        painter.setPen(color(tokens.text2))
        painter.drawText(QRectF(left, 0, room, 18), middle, note)

    def _paint_bar(self, painter: QPainter, tokens: Tokens) -> None:
        bar, (top, height) = self._bar, _BAR
        whole = QRectF(0, top, self.width(), height)
        path = rounded(whole, 4)
        painter.fillPath(path, color(tokens.free))
        painter.save()
        painter.setClipPath(path)
        for segment, box in self._placed():
            self._paint_segment(painter, tokens, segment, box, 0)
        painter.restore()
        scale = self._scale_bytes()
        if scale > bar.total_bytes:
            self._paint_limit(painter, tokens.error, bar.total_bytes / scale, 2.0)
        if bar.limit_bytes is not None:
            self._paint_limit(painter, tokens.text, bar.limit_bytes / scale, 1.4)

    def _paint_limit(self, painter: QPainter, hex_rgb: str, share: float, width: float) -> None:
        x = min(self.width() - 1.0, self.width() * share)
        painter.setPen(QPen(color(hex_rgb), width))
        painter.drawLine(round(x), round(_BAR[0] - 3), round(x), round(_BAR[0] + _BAR[1] + 2))

    def _paint_segment(self, painter: QPainter, tokens: Tokens, segment: Segment, box: QRectF, radius: float) -> None:
        match segment.kind:
            case "vram" | "pinned" | "locked" | "pageable":
                paint_tier(painter, box, Tier(segment.kind), tokens, radius=radius)
            case "leftover":
                paint_hollow(painter, box, tokens, radius=radius)
            case "other" | "weights" | "runtime" | "kv" | "slots":
                painter.fillPath(rounded(box, radius), color(getattr(tokens, segment.kind)))

    def _paint_legend(self, painter: QPainter, tokens: Tokens) -> None:
        font = ui_font(12)
        metrics = QFontMetricsF(font)
        painter.setFont(font)
        rest = self._rest()
        rest_width = metrics.horizontalAdvance(rest) + 4
        over = self._bar.used_bytes > self._bar.total_bytes
        painter.setPen(color(tokens.error if over else tokens.text3))
        row = QRectF(0, _LEGEND_Y_PX, self.width(), 18)
        painter.drawText(row, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, rest)
        x = 0.0
        shown, gap = self._fitted(self.width() - rest_width - 12, metrics)
        for segment in shown:
            said = _said(segment)
            width = metrics.horizontalAdvance(said)
            self._paint_segment(painter, tokens, segment, QRectF(x, _LEGEND_Y_PX + 4, 10, 10), 2)
            painter.setPen(color(tokens.text2))
            painter.drawText(QRectF(x + _SWATCH_PX, _LEGEND_Y_PX, width + 4, 18), Qt.AlignmentFlag.AlignVCenter, said)
            x += _SWATCH_PX + width + gap
        if len(shown) < len(self._named()):
            painter.setPen(color(tokens.text3))
            painter.drawText(QRectF(x, _LEGEND_Y_PX, 20, 18), Qt.AlignmentFlag.AlignVCenter, "…")

    def _named(self) -> list[Segment]:
        return [segment for segment in self._bar.segments if segment.bytes > 0]

    def _fitted(self, room_px: float, metrics: QFontMetricsF) -> tuple[list[Segment], float]:
        """What the legend names and the gaps between: closer together first, then without the smallest, which the
        tool tip of the bar and its description still name."""
        shown = self._named()
        while True:
            words = sum(_SWATCH_PX + metrics.horizontalAdvance(_said(segment)) for segment in shown)
            dots = 0.0 if len(shown) == len(self._named()) else 1.0
            between = len(shown) - 1 + dots
            gap = min(_GAP_PX, (room_px - words - dots * _DOTS_PX) / max(1.0, between))
            if gap >= _LEAST_GAP_PX or len(shown) < 2:
                return shown, max(gap, _LEAST_GAP_PX)
            shown.remove(min(shown, key=lambda segment: segment.bytes))

    def legend_names(self) -> list[str]:
        """Segments that the legend names."""
        metrics = QFontMetricsF(ui_font(12))
        room = self.width() - metrics.horizontalAdvance(self._rest()) - 16
        return [segment.name for segment in self._fitted(room, metrics)[0]]

    def _rest(self) -> str:
        rest = self._bar.total_bytes - self._bar.used_bytes
        return f"over by {gib(-rest)}" if rest < 0 else f"free {_number(rest)}"

    @override
    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        spot = event.position()
        for segment, box in self._placed():
            if box.adjusted(0, -1, 1.5, 1).contains(spot):
                text = f"{segment.name}: {segment.bytes:,} bytes ({exact_gib(segment.bytes)})"
                QToolTip.showText(event.globalPosition().toPoint(), text, self)
                return
        QToolTip.hideText()

    @override
    def leaveEvent(self, event: QEvent) -> None:
        QToolTip.hideText()


def _said(segment: Segment) -> str:
    return f"{segment.name} {_number(segment.bytes)}"


def _number(amount_bytes: int) -> str:
    """GiB without the unit, which the title says; smaller amounts keep theirs."""
    text = gib(amount_bytes)
    return text.removesuffix(" GiB") if amount_bytes else "0.0"
