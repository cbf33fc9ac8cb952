"""A big number with its caption and a detail line; the context can be typed in place."""

import re

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QSizePolicy, QStackedLayout, QVBoxLayout, QWidget
from typing_extensions import override

from app.ui.split_view import SpeedView, Tile
from app.ui.theme import Theme, Weight, display_font
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.label import ElidedLabel, Label

_NUMBER_PX = 24
_FRAME_PX = 8  # of the button around its number, at most
_SMALLER_PX = (21, 18)  # where a long number finds no room
_TYPED = re.compile(r"(\d{1,3}(?:[,. ']\d{3})+|\d+)(?:[.,](\d{1,2}))?\s*([km]?)\s*(?:tokens?)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
NOT_A_NUMBER = "Type a number such as 32k"


def parse_tokens(text: str) -> int | None:
    """Read "40000", "40,000", "40k" (1k = 1,024 tokens), "1.5k" or "40 000 tokens"; None if it is no such number."""
    match = _TYPED.fullmatch(text.strip().replace("\N{NO-BREAK SPACE}", " "))
    if match is None:
        return None
    digits, fraction, unit = re.sub(r"\D", "", match[1]), match[2], match[3].lower()
    if fraction is None:
        return int(digits) * _UNITS[unit] or None
    return round(float(f"{digits}.{fraction}") * _UNITS[unit]) or None if unit else None


class NumberTile(QWidget):
    """Caption, number, detail."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tile = Tile("", "", "")
        self._caption = Label("", 12, role="muted")
        self._detail = ElidedLabel("", 12, role="muted")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # columns of one width
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(0, 0, 0, 0)
        self.column.setSpacing(1)
        self.column.addWidget(self._caption)
        self._place_value()
        self.column.addWidget(self._detail)
        self.column.addStretch()
        self.column.addStretch()  # a tile beside it may have a line more

    def _place_value(self) -> None:
        self._value = Label("", _NUMBER_PX, Weight.DemiBold, display=True)
        self.column.addWidget(self._value)

    def _show_value(self, tile: Tile) -> None:
        self._value.say(tile.value)

    def _show_detail(self) -> None:
        self._detail.say(self._tile.detail, self._tile.tone)

    def show_tile(self, tile: Tile) -> None:
        self._tile = tile
        self._caption.say(tile.caption)
        self._show_value(tile)
        self._show_detail()
        self.setAccessibleName(tile.spoken)

    @property
    def need_px(self) -> int:
        """How wide its texts are."""
        shown = (self._caption, self._detail, *self._values())
        return max(one.sizeHint().width() for one in shown) + 1  # a pixel is lost where a row is shared out

    def _values(self) -> tuple[QWidget, ...]:
        return (self._value,)


class SpeedTile(NumberTile):
    """The speed of the split; where it is not known, a link to measure it stands in its place.

    Signals:
        measure_wanted: the link was pressed.
    """

    measure_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        self._link = ActionButton(theme, "Measure now", kind="inplace")
        self._none = Label("", 15, Weight.DemiBold, role="muted")
        self._prompt = ElidedLabel("", 12, role="muted")
        super().__init__(parent)
        self._prompt.setFixedHeight(self._prompt.sizeHint().height())  # nothing below moves when it becomes known
        self.column.insertWidget(self.column.count() - 1, self._prompt)  # the lines above are those of the other tiles
        self._link.clicked.connect(self.measure_wanted)

    @override
    def _place_value(self) -> None:
        super()._place_value()
        holder = QWidget()
        holder.setFixedHeight(self._value.sizeHint().height())
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        for shown in (self._link, self._none):
            row.addWidget(shown, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addStretch()
        self._instead = holder
        self.column.addWidget(holder)

    @override
    def _values(self) -> tuple[QWidget, ...]:
        return tuple(one for one in (self._value, self._link, self._none, self._prompt) if not one.isHidden())

    def show_speed(self, view: SpeedView) -> None:
        """What is known, or the way to know it."""
        self.show_tile(Tile(view.caption, view.value, view.detail))
        self._prompt.say(view.prompt)
        self._prompt.say_hint(view.hint)
        self._value.setVisible(bool(view.value))
        self._instead.setVisible(not view.value)
        self._link.setVisible(view.measurable)
        self._none.say(view.instead)
        self._none.setVisible(not view.measurable)
        self._detail.say_hint(view.hint)
        self.setAccessibleName(view.hint)
        self._link.setAccessibleDescription(view.hint)


class ContextTile(NumberTile):
    """The number is a button: a click turns it into a field for an exact context. What is no number stays there.

    Signals:
        entered: a number of tokens was typed and confirmed (int of any size).
    """

    entered = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        self._button = QPushButton()
        self._longest = ""
        self._field = QLineEdit()
        self._refused = False
        super().__init__(parent)

    @override
    def _place_value(self) -> None:
        self._button.setProperty("kind", "number")
        self._button.setFont(display_font(_NUMBER_PX))
        self._button.setCursor(Qt.CursorShape.PointingHandCursor)
        self._button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._button.setToolTip("Type an exact context (Ctrl+G)")
        self._button.clicked.connect(self.edit)
        self._field.setFont(display_font(_NUMBER_PX))
        self._field.setAccessibleName("Context in tokens")
        self._field.setMaximumWidth(210)
        self._field.setProperty("kind", "number")
        self._field.returnPressed.connect(self._confirm)
        self._field.installEventFilter(self)
        holder = QWidget()
        holder.setFixedHeight(QFontMetrics(display_font(_NUMBER_PX)).height())
        self._stack = QStackedLayout(holder)
        shown = QWidget()
        row = QHBoxLayout(shown)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._button)
        row.addStretch()
        self._stack.addWidget(shown)
        self._stack.addWidget(self._field)
        self.column.addWidget(holder)

    @override
    def _show_value(self, tile: Tile) -> None:
        self._button.setText(tile.value)
        self._button.setAccessibleName(tile.spoken)
        self._button.setAccessibleDescription("Type an exact context")

    @override
    def _show_detail(self) -> None:
        if self._refused:
            self._detail.say(NOT_A_NUMBER, "error")
        else:
            super()._show_detail()

    @override
    def _values(self) -> tuple[QWidget, ...]:
        return (self._button,)

    def make_room_for(self, longest: str) -> None:
        """Need as much room as another number does: nothing moves on the way to it."""
        self._longest = longest

    @property
    @override
    def need_px(self) -> int:
        return max(super().need_px, self._number_px() + 1)

    def _number_px(self) -> int:
        """The width of this number, or of the longest."""
        longest = self._button.fontMetrics().horizontalAdvance(self._longest) + _FRAME_PX
        return max(self._button.sizeHint().width(), longest)

    def fit_number(self, room_px: int) -> None:
        """Write the number as large as fits."""
        for px in (_NUMBER_PX, *_SMALLER_PX):
            font = display_font(px)
            if font != self._button.font():
                self._button.setFont(font)
            if self._number_px() <= room_px:
                break

    @property
    def editing(self) -> bool:
        return self._stack.currentIndex() == 1

    def set_editable(self, editable: bool) -> None:
        self._button.setEnabled(editable)
        if not editable:
            self._leave()

    def edit(self) -> None:
        """Open the field with the number in it, selected."""
        if not self._button.isEnabled():
            return
        self._field.setText(self._button.text().removesuffix("tokens").strip())
        self._stack.setCurrentIndex(1)
        self._field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._field.selectAll()

    def _confirm(self) -> None:
        count = parse_tokens(self._field.text())
        if count is None:
            self._refuse(True)
            self._field.selectAll()
            return
        self._back()
        self.entered.emit(count)

    def _refuse(self, refused: bool) -> None:
        self._refused = refused
        self._field.setAccessibleDescription(NOT_A_NUMBER if refused else "")
        self._show_detail()

    def _leave(self) -> None:
        if self.editing:
            self._stack.setCurrentIndex(0)
            self._refuse(False)

    def _back(self) -> None:
        """Close the field and give the keyboard back to the number."""
        self._leave()
        self._button.setFocus(Qt.FocusReason.ShortcutFocusReason)

    @override
    def eventFilter(self, watched: object, event: QEvent) -> bool:
        if watched is not self._field:
            return False
        if event.type() is QEvent.Type.FocusOut:
            self._leave()
        elif isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress and event.key() == Qt.Key.Key_Escape:
            self._back()
            return True
        return False
