"""One cell per MoE layer: colour and texture say where its bank lives, the filled part how much of it is loaded."""

from PySide6.QtCore import QEasingCurve, QEvent, QPoint, QPointF, QRectF, QSize, Qt, QVariantAnimation, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QContextMenuEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget
from typing_extensions import override

from app.ui.split_view import Cell, StripView
from app.ui.theme import Theme, color, ui_font
from app.ui.tokens import Tokens
from app.ui.widgets.focus import came_by_keyboard
from app.ui.widgets.label import plain_tip
from app.ui.widgets.tier_paint import paint_tier, rounded
from app.ui.widgets.turning import Turning
from app.ui.wording import TIER_EXPLAINED, TIER_NAMES, exact_gib
from engine.contract.plan import Tier

_CELL_PX = 36
_ASKED_PX = 10
_SCALE_PX = 20
_GLEAM_MS, _GLEAM_SHARE, _GLEAM_ALPHA = 1_600, 0.2, 40  # what runs along while there is nothing to read yet


def describe(cell: Cell) -> str:
    """ "Layer 17: pinned RAM, the GPU reads it over PCIe, 1.90 GiB", and what was asked for if that differs."""
    said = f"Layer {cell.layer}: {TIER_EXPLAINED[cell.tier]}, {exact_gib(cell.bytes)}"
    if cell.forced:
        said += ". Tier chosen by you"
    if cell.now is not None and cell.now is not cell.tier:
        said += f". Now: {TIER_EXPLAINED[cell.now]}"
    if cell.asked is not cell.tier:
        said += f". Asked for {TIER_NAMES[cell.asked]}"
        if cell.cause:
            said += f". {cell.cause}"
    return said


class LayerStrip(QWidget):
    """The strip. Left and Right walk the cells and speak each one.

    Signals:
        menu_wanted: the tier menu of a layer was asked for (layer, global position).
    """

    menu_wanted = Signal(int, QPoint)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._view = StripView()
        self._before: tuple[Cell, ...] = ()
        self._current: int | None = None
        self._ring = False
        self._mix = 1.0
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Layer residency")
        self._fade = QVariantAnimation(self)
        self._fade.setDuration(140)
        self._fade.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._fade.setStartValue(0.0)
        self._fade.setEndValue(1.0)
        self._fade.valueChanged.connect(self._faded)
        self._gleam = Turning(theme, self, round_ms=_GLEAM_MS)

    @property
    def current(self) -> int | None:
        """Index of the cell under the pointer or reached by the arrow keys."""
        return self._current

    @property
    def shown(self) -> StripView:
        """What is painted."""
        return self._view

    def show_view(self, view: StripView) -> None:
        """Take other cells; tiers that changed fade over."""
        if view == self._view:
            return
        old, self._view = self._view, view
        same_layers = [cell.layer for cell in old.cells] == [cell.layer for cell in view.cells]
        self._before = old.cells if same_layers else view.cells
        if self._current is not None and self._current >= len(view.cells):
            self._current = None
        self._describe()
        self._gleam.want(view.waits)
        if old.two_rows != view.two_rows:
            self.updateGeometry()
        self._fade.stop()
        moved = any(a.tier is not b.tier for a, b in zip(self._before, view.cells, strict=True))
        if moved and self._theme.animated and self.isVisible():
            self._mix = 0.0
            self._fade.start()
        else:
            self._mix = 1.0
        self.update()

    def _describe(self) -> None:
        if self._current is not None:
            self.setAccessibleDescription(describe(self._view.cells[self._current]))
            return
        parts = [
            f"{count} layer{'' if count == 1 else 's'} {TIER_NAMES[tier]}"
            for tier in Tier
            if (count := self._view.count(tier))
        ]
        self.setAccessibleDescription(", ".join(parts))

    def _faded(self, mix: float) -> None:
        self._mix = mix
        self.update()

    @override
    def sizeHint(self) -> QSize:
        return QSize(600, _CELL_PX + _SCALE_PX + (_ASKED_PX + 4 if self._view.two_rows else 0))

    @override
    def minimumSizeHint(self) -> QSize:
        return QSize(200, self.sizeHint().height())

    def cell_rect(self, index: int) -> QRectF:
        """The big rectangle of one cell."""
        width = self.width() / max(1, len(self._view.cells))
        gap = 2.0 if width > 6 else 1.0
        top = _ASKED_PX + 4.0 if self._view.two_rows else 0.0
        return QRectF(index * width + gap / 2, top, width - gap, _CELL_PX)

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        tokens = self._theme.tokens
        for index, cell in enumerate(self._view.cells):
            self._paint_cell(painter, tokens, index, cell)
        self._paint_scale(painter, tokens)
        if self.hasFocus() and self._ring and self._view.cells:
            painter.setPen(QPen(color(tokens.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, 1 - _SCALE_PX + 2), 4, 4)
        painter.end()

    def _paint_cell(self, painter: QPainter, tokens: Tokens, index: int, cell: Cell) -> None:
        box = self.cell_rect(index)
        before = self._before[index].tier if self._before else cell.tier
        if self._view.two_rows:
            top = QRectF(box.left(), 0, box.width(), _ASKED_PX)
            paint_tier(painter, top, cell.now or cell.asked, tokens, radius=1.5, texture=False)
        if cell.fill < 1:
            painter.fillPath(rounded(box, 2.5), color(tokens.free))
            if gleam := self._gleam_alpha(box.center().x()):
                painter.fillPath(rounded(box, 2.5), color(tokens.text2, gleam))
            if cell.fill > 0:
                painter.save()
                done = box.height() * cell.fill
                painter.setClipRect(QRectF(box.left(), box.bottom() - done, box.width(), done))
                paint_tier(painter, box, cell.tier, tokens)
                painter.restore()
        elif self._mix < 1 and before is not cell.tier:
            paint_tier(painter, box, before, tokens)
            painter.setOpacity(self._mix)
            paint_tier(painter, box, cell.tier, tokens)
            painter.setOpacity(1.0)
        else:
            paint_tier(painter, box, cell.tier, tokens)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self._view.two_rows and (cell.now or cell.asked) is not cell.tier:
            painter.setPen(QPen(color(tokens.text), 1.6))
            painter.drawRoundedRect(box.adjusted(-0.2, -0.2, 0.2, 0.2), 2.5, 2.5)
        if index == self._current:
            painter.setPen(QPen(color(tokens.text), 2))
            painter.drawRoundedRect(box.adjusted(0.4, 0.4, -0.4, -0.4), 2.5, 2.5)
        if cell.forced:
            self._paint_corner(painter, tokens, box)

    def _gleam_alpha(self, x: float) -> int:
        """How bright the light that runs along is here, 0..255."""
        if not self._view.waits:
            return 0
        centre = self._gleam.turn * (1 + 2 * _GLEAM_SHARE) - _GLEAM_SHARE
        return round(_GLEAM_ALPHA * max(0.0, 1 - abs(x / max(1, self.width()) - centre) / _GLEAM_SHARE))

    def _paint_corner(self, painter: QPainter, tokens: Tokens, box: QRectF) -> None:
        side = min(7.0, box.width())
        corner = QPolygonF([box.topRight(), box.topRight() - QPointF(side, 0), box.topRight() + QPointF(0, side)])
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color(tokens.text))
        painter.drawPolygon(corner)

    def _paint_scale(self, painter: QPainter, tokens: Tokens) -> None:
        painter.setFont(ui_font(11))
        painter.setPen(color(tokens.text3))
        last = len(self._view.cells) - 1
        marks = list(range(0, last + 1, 10))
        if last > 0 and last % 10 > 3:
            marks.append(last)
        for index in marks:
            box = self.cell_rect(index)
            left = min(max(box.center().x() - 20, 0.0), self.width() - 40.0)
            align = Qt.AlignmentFlag.AlignHCenter
            if left != box.center().x() - 20:
                align = Qt.AlignmentFlag.AlignLeft if index == 0 else Qt.AlignmentFlag.AlignRight
            text = QRectF(left, box.bottom() + 3, 40, 15)
            painter.drawText(text, align | Qt.AlignmentFlag.AlignVCenter, str(self._view.cells[index].layer))

    def _index_at(self, x: float) -> int | None:
        cells = len(self._view.cells)
        return None if cells == 0 else min(max(int(x / max(1, self.width()) * cells), 0), cells - 1)

    def _go_to(self, index: int | None) -> None:
        if index != self._current:
            self._current = index
            self._describe()
            self.update()

    @override
    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._go_to(self._index_at(event.position().x()))
        if self._current is not None:
            said = plain_tip(describe(self._view.cells[self._current]))
            QToolTip.showText(event.globalPosition().toPoint(), said, self)

    @override
    def leaveEvent(self, event: QEvent) -> None:
        self._go_to(None)

    @override
    def focusInEvent(self, event: QFocusEvent) -> None:
        self._ring = came_by_keyboard(event)
        super().focusInEvent(event)
        self.update()

    @override
    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._go_to(None)
        super().focusOutEvent(event)

    @override
    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step is None or not self._view.cells:
            super().keyPressEvent(event)
            return
        start = -1 if self._current is None else self._current
        index = min(max(start + step, 0), len(self._view.cells) - 1)
        self._go_to(index)
        said = describe(self._view.cells[index])
        QToolTip.showText(self.mapToGlobal(self.cell_rect(index).center().toPoint()), plain_tip(said), self)
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, said))

    @override
    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        by_mouse = event.reason() is QContextMenuEvent.Reason.Mouse
        index = self._index_at(event.pos().x()) if by_mouse else self._current
        if index is None:
            return
        spot = event.globalPos() if by_mouse else self.mapToGlobal(self.cell_rect(index).center().toPoint())
        self.menu_wanted.emit(self._view.cells[index].layer, spot)
