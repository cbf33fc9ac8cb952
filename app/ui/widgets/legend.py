"""Counts and bytes per tier, beside the look of each tier."""

from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget
from typing_extensions import override

from app.ui.split_view import StripView
from app.ui.theme import Theme, Weight, color, ui_font
from app.ui.widgets.tier_paint import paint_tier
from app.ui.wording import TIER_NAMES
from engine.contract.plan import Tier
from engine.contract.units import gib

_SWATCH_PX = 14


class Legend(QWidget):
    """One line: "8 VRAM · 15.2 GiB", and so on, for the tiers this machine can have."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._items: list[tuple[Tier, int, int]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_strip(self, strip: StripView) -> None:
        self._items = [(tier, strip.count(tier), strip.tier_bytes(tier)) for tier in strip.tiers]
        self.setAccessibleName("; ".join(f"{count} {_words(tier, count, size)}" for tier, count, size in self._items))
        self.update()

    @override
    def sizeHint(self) -> QSize:
        return QSize(300, 20)

    @override
    def minimumSizeHint(self) -> QSize:
        return QSize(200, 20)

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tokens = self._theme.tokens
        normal, strong = ui_font(12), ui_font(12, Weight.DemiBold)
        x = 0.0
        for tier, count, size in self._items:
            paint_tier(painter, QRectF(x, 3, _SWATCH_PX, _SWATCH_PX), tier, tokens)
            x += _SWATCH_PX + 6
            number = f"{count} "
            painter.setFont(strong)
            painter.setPen(color(tokens.text if count else tokens.text3))
            painter.drawText(QPointF(x, 14.5), number)
            x += QFontMetricsF(strong).horizontalAdvance(number)
            words = _words(tier, count, size)
            painter.setFont(normal)
            painter.setPen(color(tokens.text2 if count else tokens.text3))
            painter.drawText(QPointF(x, 14.5), words)
            x += QFontMetricsF(normal).horizontalAdvance(words) + 24
        painter.end()


def _words(tier: Tier, count: int, size: int) -> str:
    return f"{TIER_NAMES[tier]} · {gib(size)}" if count else TIER_NAMES[tier]
