"""The three cards of the Split page: the trade, the layers, the memory."""

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget
from typing_extensions import override

from app.ui.columns import column_widths
from app.ui.split_view import QuickMark, SpeedView, SplitView
from app.ui.theme import Theme, Weight
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.card import Card, Line
from app.ui.widgets.change_bar import ChangeBar
from app.ui.widgets.focus import tab_after
from app.ui.widgets.label import Label
from app.ui.widgets.layer_strip import LayerStrip
from app.ui.widgets.legend import Legend
from app.ui.widgets.memory_bar import MemoryBar
from app.ui.widgets.number_tile import ContextTile, NumberTile, SpeedTile
from app.ui.widgets.split_slider import SplitSlider
from app.ui.widgets.switch import Switch

_TILES = 4
_SHARES = (22, 13, 22, 17, 20)  # of the width: about what the numbers of each need
_GAP_PX = 12


class TradeCard(Card):
    """Big numbers, and the slider that trades context against layers in VRAM.

    Signals:
        marked: a quick mark was pressed (tokens, or None for the largest that fits).
        measure_wanted: the speed of this PC is to be measured.
    """

    marked = Signal(object)
    measure_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(spacing=5, bottom=6, parent=parent)
        self._theme = theme
        self._marks: tuple[QuickMark, ...] = ()
        self.context = ContextTile()
        self.tiles: tuple[NumberTile, ...] = (self.context, *(NumberTile() for _ in range(_TILES - 1)))
        self.speed = SpeedTile(theme)
        self.speed.measure_wanted.connect(self.measure_wanted)
        self._numbers = QHBoxLayout()
        self._numbers.setSpacing(_GAP_PX)
        self.speed.show_speed(SpeedView("0", "0", ""))
        self._numbers.addStrut(self.speed.sizeHint().height())  # nothing below moves where no speed can be told
        for tile in (*self.tiles, self.speed):
            self._numbers.addWidget(tile)
        self._left = Label("", 12, Weight.Medium, role="muted")
        self._right = Label("", 12, Weight.Medium, role="muted")
        self._mark_row = QHBoxLayout()
        self._mark_row.setSpacing(4)
        captions = QHBoxLayout()
        captions.addStrut(22)  # the quick marks come and go; nothing below them moves
        captions.addWidget(self._left)
        captions.addStretch()
        captions.addLayout(self._mark_row)
        captions.addStretch()
        captions.addWidget(self._right)
        self.slider = SplitSlider(theme)
        self.slider.setAccessibleName("Context against VRAM layers")
        self.column.addLayout(self._numbers)
        self.column.addLayout(captions)
        self.column.addWidget(self.slider)
        self.change = ChangeBar(theme, self.slider)
        self.column.addWidget(self.change)

    def show_view(self, view: SplitView) -> None:
        for index, tile in enumerate(self.tiles):
            tile.setVisible(index < len(view.tiles))
            if index < len(view.tiles):
                tile.show_tile(view.tiles[index])
        self.speed.setVisible(view.speed is not None)
        if view.speed is not None:
            self.speed.show_speed(view.speed)
        slider = view.slider
        self.context.make_room_for(slider.longest)
        self._place_numbers()
        self._left.say(slider.captions[0])
        self._right.say(slider.captions[1])
        self.context.set_editable(slider.enabled)
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, max(0, slider.stops - 1))
            if self.slider.value() != slider.position:
                self.slider.setValue(slider.position)
        self.slider.setEnabled(slider.enabled)
        self.slider.setAccessibleDescription(slider.described)
        self.slider.setToolTip(slider.hint)
        self.slider.set_limits(slider.markers, assumed=slider.assumed, unmet=slider.unmet, running=slider.running)
        if view.quick_marks != self._marks:
            self._show_marks(view.quick_marks)
        self.change.show_change(view.change)  # last: it looks at who has the keyboard

    @override
    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place_numbers()
        super().resizeEvent(event)

    def _place_numbers(self) -> None:
        """Columns that stay where they are while the numbers change, as long as the numbers find room in them."""
        placed = [
            (tile, share) for tile, share in zip((*self.tiles, self.speed), _SHARES, strict=True) if not tile.isHidden()
        ]
        margins = self.column.contentsMargins()
        room = self.width() - margins.left() - margins.right() - _GAP_PX * (len(placed) - 1)
        others = sum(tile.need_px for tile, _ in placed if tile is not self.context)
        self.context.fit_number(room - others)
        widths = column_widths(room, [share for _, share in placed], [tile.need_px for tile, _ in placed])
        for (tile, _), width in zip(placed, widths, strict=True):
            self._numbers.setStretchFactor(tile, width)  # an index would count the strut

    def _show_marks(self, marks: tuple[QuickMark, ...]) -> None:
        self._marks = marks
        while (item := self._mark_row.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        buttons = []
        for mark in marks:
            button = ActionButton(self._theme, mark.label, kind="link")
            if mark.context_tokens is not None:
                button.setAccessibleName(f"{mark.context_tokens:,} tokens of context")
            button.clicked.connect(lambda _=False, wanted=mark.context_tokens: self.marked.emit(wanted))
            self._mark_row.addWidget(button)
            buttons.append(button)
        tab_after(self.tiles[-1], buttons)


class LayersCard(Card):
    """The strip, its legend, and how many of the layers outside VRAM are pinned.

    Signals:
        pinned_wished: a number of layers, or None to fill the quota.
    """

    pinned_wished = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(bottom=10, parent=parent)
        self._note = self.add_title("Layers")
        self.strip = LayerStrip(theme)
        self.legend = Legend(theme)
        self.column.addWidget(self.strip)
        self.column.addWidget(self.legend)
        self._pinned = QWidget()
        row = QHBoxLayout(self._pinned)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(14)
        self._pinned_text = Label()
        self.pinned_slider = SplitSlider(theme, thin=True)
        self.pinned_slider.setAccessibleName("Pinned layers")
        self.pinned_slider.setMinimumWidth(200)
        self.fill = Switch(theme, "Fill the quota")
        self.fill.setToolTip("Pin as many layers as the quota allows")
        row.addWidget(self._pinned_text)
        row.addWidget(self.pinned_slider, 1)
        row.addWidget(self.fill)
        self._line = Line()
        self.column.addWidget(self._line)
        self.column.addWidget(self._pinned)
        self.pinned_slider.valueChanged.connect(lambda count: self.pinned_wished.emit(count))
        self.fill.toggled.connect(self._fill_toggled)

    def show_view(self, view: SplitView) -> None:
        self._note.say(view.strip.note)
        self.strip.show_view(view.strip)
        self.legend.show_strip(view.strip)
        pinned = view.pinned
        self._line.setVisible(pinned.visible)
        self._pinned.setVisible(pinned.visible)
        said = f"{pinned.value} of {pinned.outside_vram} layers outside VRAM"
        self._pinned_text.say(f"Pinned {said}")
        with QSignalBlocker(self.pinned_slider), QSignalBlocker(self.fill):
            self.pinned_slider.setRange(0, pinned.most)
            self.pinned_slider.setValue(pinned.value)
            self.fill.setChecked(pinned.fill)
        self.pinned_slider.setAccessibleDescription(said)
        self.pinned_slider.setEnabled(pinned.enabled)
        self.fill.setEnabled(pinned.enabled)

    def _fill_toggled(self, on: bool) -> None:
        self.pinned_wished.emit(None if on else self.pinned_slider.value())


class MemoryCard(Card):
    """One bar a pool of memory."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(bottom=10, parent=parent)
        self._theme = theme
        self._note = self.add_title("Memory")
        self.bars: list[MemoryBar] = []

    def show_view(self, view: SplitView) -> None:
        self._note.say(view.memory_note)
        self._note.say_hint(view.memory_hint)
        while len(self.bars) < len(view.bars):
            bar = MemoryBar(self._theme)
            self.bars.append(bar)
            self.column.addWidget(bar, 0, Qt.AlignmentFlag.AlignTop)
        for index, widget in enumerate(self.bars):
            widget.setVisible(index < len(view.bars))
            if index < len(view.bars):
                widget.show_bar(view.bars[index])

    @property
    def note(self) -> str:
        """Where the numbers are from."""
        return self._note.text()
