"""How full the KV cache would be with what is typed: words, a thin bar, and a colour that repeats the words."""

from typing import Final

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget
from typing_extensions import override

from app.chat.context_use import ContextUse
from app.chat.phrases import meter_line
from app.ui.theme import Theme, color, ui_font
from app.ui.widgets.tier_paint import rounded

WARN_SHARE: Final = 0.85
_BAR_PX: Final = 120
_GAP_PX: Final = 12
_OVER: Final = ": does not fit"


class ContextMeter(QWidget):
    """Give it `show_use`; without a pool (no engine) it says only what the chat takes."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._use = ContextUse(0, about=False)
        self._context_tokens: int | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(20)

    def show_use(self, use: ContextUse, context_tokens: int | None) -> None:
        """Args:
        use: history and typed text.
        context_tokens: what the KV cache of the engine holds.
        """
        self._use, self._context_tokens = use, context_tokens
        said = meter_line(use, context_tokens)
        self.setAccessibleName(f"{said} used{_OVER * self.is_over}" if said else "Context")
        self.setToolTip(
            "Counted by the engine up to its last answer; what came after is estimated at 4 characters a token."
            if use.about
            else ""
        )
        self.update()

    @property
    def text(self) -> str:
        """The words."""
        return meter_line(self._use, self._context_tokens) + _OVER * self.is_over

    @property
    def is_over(self) -> bool:
        """History and typed text leave no room for a token of the answer."""
        return self._context_tokens is not None and self._use.tokens >= self._context_tokens

    @property
    def tint(self) -> str:
        """Colour of the words: quiet, amber from 85 %, red when it does not fit."""
        tokens = self._theme.tokens
        if self.is_over:
            return tokens.error
        return tokens.warn if self._share >= WARN_SHARE else tokens.text2

    @property
    def _share(self) -> float:
        return min(1.0, self._use.tokens / self._context_tokens) if self._context_tokens else 0.0

    @override
    def sizeHint(self) -> QSize:
        return QSize(240, 20)

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        tokens = self._theme.tokens
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = ui_font(12)
        metrics = QFontMetricsF(font)
        painter.setFont(font)
        painter.setPen(color(self.tint))
        words = metrics.elidedText(self.text, Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(QRectF(self.rect()), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, words)
        left = metrics.horizontalAdvance(words) + _GAP_PX
        if self._context_tokens is not None and left + _BAR_PX <= self.width():
            bar = QRectF(left, (self.height() - 4) / 2, _BAR_PX, 4)
            painter.fillPath(rounded(bar, 2), color(tokens.free))
            bar.setWidth(max(4.0, _BAR_PX * self._share) if self._use.tokens else 0)
            quiet = tokens.accent if self._share < WARN_SHARE else self.tint
            painter.fillPath(rounded(bar, 2), color(quiet))
        painter.end()
