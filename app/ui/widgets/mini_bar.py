"""One line at the foot of the rail: a name, used of total, and a thin bar."""

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget
from typing_extensions import override

from app.ui.theme import Theme, color, ui_font
from app.ui.widgets.tier_paint import rounded
from app.ui.wording import gib_of
from engine.contract.plan import Tier
from engine.contract.units import GIB, gib

_WORTH_A_WORD_BYTES = GIB // 20


class MiniBar(QWidget):
    """`tier` gives the colour; None is neutral. Hidden while the total is unknown."""

    def __init__(self, theme: Theme, title: str, tier: Tier | None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._title = title
        self._tier = tier
        self._used_bytes = 0
        self._total_bytes = 0
        self._numbers = ""
        self.setFixedHeight(40)
        self.hide()

    def show_use(self, used_bytes: int | None, total_bytes: int | None, *, assumed: bool = False) -> None:
        """`assumed`: nobody has measured the total, so it is drawn and not written."""
        known = used_bytes is not None and bool(total_bytes)
        self.setVisible(known)
        if used_bytes is None or not total_bytes:
            return
        numbers = gib_of(used_bytes, total_bytes)
        if assumed:
            numbers = gib(used_bytes) if used_bytes >= _WORTH_A_WORD_BYTES else "not measured"
        shown = (used_bytes, total_bytes, numbers)
        if shown == (self._used_bytes, self._total_bytes, self._numbers):
            return
        self._used_bytes, self._total_bytes, self._numbers = shown
        said = f"{self._title}: {numbers}"
        self.setAccessibleName(said)
        self.setToolTip(said)
        self.update()

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        t = self._theme.tokens
        narrow = self.width() < 100
        pad = 4.0 if narrow else 16.0
        row = QRectF(pad, 2, self.width() - 2 * pad, 16)
        painter.setFont(ui_font(11))
        painter.setPen(color(t.text2))
        middle = Qt.AlignmentFlag.AlignVCenter
        painter.drawText(row, middle | (Qt.AlignmentFlag.AlignHCenter if narrow else middle), self._title)
        if not narrow:
            painter.drawText(row, middle | Qt.AlignmentFlag.AlignRight, self._numbers)
        bar = QRectF(pad, 22, row.width(), 4)
        painter.fillPath(rounded(bar, 2), color(t.free))
        bar.setWidth(max(4.0, bar.width() * min(1.0, self._used_bytes / max(1, self._total_bytes))))
        painter.fillPath(rounded(bar, 2), color(t.text3 if self._tier is None else t.tier(self._tier)))
        painter.end()
