"""The left rail: the pages, and at its foot three bars that are always live."""

from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QButtonGroup, QSizePolicy, QVBoxLayout, QWidget
from typing_extensions import override

from app.ui import icons
from app.ui.theme import Theme, Weight, color, display_font, ui_font
from app.ui.widgets.mini_bar import MiniBar
from app.ui.widgets.painted_button import PaintedButton
from app.ui.widgets.tier_paint import rounded
from engine.contract.plan import Tier
from engine.system.protocols import MemoryUse

WIDE_PX, NARROW_PX = 196, 56


@dataclass(frozen=True, slots=True)
class RailEntry:
    """One page in the rail."""

    key: str
    icon: str
    title: str


class RailButton(PaintedButton):
    """Icon and title of a page; the chosen one has an accent bar."""

    def __init__(self, theme: Theme, entry: RailEntry, parent: QWidget | None = None) -> None:
        super().__init__(theme, entry.title, focus=Qt.FocusPolicy.TabFocus, parent=parent)
        self._entry = entry
        self._badge = ""
        self.setText(entry.title)
        self.setCheckable(True)
        self.setFixedHeight(38)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_badge(self, text: str) -> None:
        """A short mark at the right, or none."""
        self._badge = text
        self.setAccessibleDescription(text)
        self.update()

    @override
    def sizeHint(self) -> QSize:
        return QSize(48, 38)

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        t = self._theme.tokens
        body = QRectF(self.rect()).adjusted(8, 1, -8, -1)
        if self.isChecked() or self.underMouse():
            painter.fillPath(rounded(body, 6), color(t.raised if self.isChecked() else t.surface))
        if self.isChecked():
            bar = QRectF(body.left(), body.center().y() - 8, 3, 16)
            painter.fillPath(rounded(bar, 1.5), color(t.accent))
        tint = t.text if self.isChecked() else t.text2
        narrow = self.width() < 100
        left = body.center().x() - 10 if narrow else body.left() + 12
        picture = icons.pixmap(self._entry.icon, tint, 20, self.devicePixelRatioF())
        painter.drawPixmap(QPointF(left, body.center().y() - 10), picture)
        if not narrow:
            painter.setPen(color(tint))
            painter.setFont(ui_font(13, Weight.DemiBold if self.isChecked() else Weight.Normal))
            painter.drawText(body.adjusted(42, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, self.text())
        if self._badge:
            font = ui_font(11, Weight.DemiBold)
            width = max(18.0, QFontMetricsF(font).horizontalAdvance(self._badge) + 12)
            spot = QRectF(body.right() - width - (0 if narrow else 8), body.center().y() - 9, width, 18)
            if narrow:
                spot.moveTop(body.top())
            painter.fillPath(rounded(spot, 9), color(t.warn))
            painter.setFont(font)
            painter.setPen(color(t.bg))
            painter.drawText(spot, Qt.AlignmentFlag.AlignCenter, self._badge)
        self.paint_ring(painter, body.adjusted(1, 1, -1, -1), 6)
        painter.end()


class _Brand(QWidget):
    """The pin and the name."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setFixedHeight(36)

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        t = self._theme.tokens
        narrow = self.width() < 100
        left = (self.width() - 20) / 2 if narrow else 16.0
        pin = icons.pixmap("pin", t.accent, 20, self.devicePixelRatioF(), 2)
        painter.drawPixmap(QPointF(left, 2), pin)
        if not narrow:
            painter.setPen(color(t.text))
            painter.setFont(display_font(15))
            painter.drawText(QRectF(44, 0, self.width(), 24), Qt.AlignmentFlag.AlignVCenter, "Splitpin")
        painter.end()


class Rail(QWidget):
    """Signals:
    chosen: a page was chosen (its key).
    """

    chosen = Signal(str)

    def __init__(self, theme: Theme, entries: tuple[RailEntry, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("Rail")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName("Pages")
        column = QVBoxLayout(self)
        column.setContentsMargins(4, 14, 4, 12)
        column.setSpacing(2)
        column.addWidget(_Brand(theme))
        self._buttons: dict[str, RailButton] = {}
        self._group = QButtonGroup(self)
        for number, entry in enumerate(entries, 1):
            button = RailButton(theme, entry)
            button.setToolTip(f"{entry.title} (Ctrl+{number})")
            button.clicked.connect(lambda _=False, key=entry.key: self.chosen.emit(key))
            self._group.addButton(button)
            self._buttons[entry.key] = button
            column.addWidget(button)
        column.addStretch()
        self.vram = MiniBar(theme, "VRAM", Tier.VRAM)
        self.pinned = MiniBar(theme, "Pinned", Tier.PINNED)
        self.ram = MiniBar(theme, "RAM", None)
        for bar in (self.vram, self.pinned, self.ram):
            column.addWidget(bar)
        self.set_narrow(False)

    def choose(self, key: str) -> None:
        """Mark a page as the current one."""
        self._buttons[key].setChecked(True)

    @property
    def current(self) -> RailButton | None:
        """The button of the current page."""
        return next((button for button in self._buttons.values() if button.isChecked()), None)

    def set_badge(self, key: str, text: str) -> None:
        self._buttons[key].set_badge(text)

    def set_narrow(self, narrow: bool) -> None:
        """Icons only."""
        self.setFixedWidth(NARROW_PX if narrow else WIDE_PX)

    def show_memory(
        self, use: MemoryUse, *, pinned_bytes: int | None, quota_bytes: int | None, assumed: bool = False
    ) -> None:
        """Live readings; bars of memory this machine does not have are hidden. `assumed`: so is the quota."""
        self.vram.show_use(use.vram_used, use.vram_total)
        self.pinned.show_use(pinned_bytes, quota_bytes, assumed=assumed)
        self.ram.show_use(use.ram_used, use.ram_total)
