"""A big number with its caption and a detail line; the context can be typed in place."""

import re

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QSizePolicy, QStackedLayout, QVBoxLayout, QWidget
from typing_extensions import override

from app.ui.split_view import Tile
from app.ui.theme import Weight, display_font
from app.ui.widgets.label import ElidedLabel, Label

_NUMBER_PX = 24
_TYPED = re.compile(r"\s*(\d[\d,.\s']*?)\s*([kK]?)\s*(?:tokens?)?\s*")


def parse_tokens(text: str) -> int | None:
    """Read "40000", "40,000", "40k" (1k = 1,024 tokens) or "40 000 tokens"; None if it is no such number."""
    match = _TYPED.fullmatch(text)
    if match is None:
        return None
    digits = re.sub(r"\D", "", match[1])
    return int(digits) * (1024 if match[2] else 1) or None


class NumberTile(QWidget):
    """Caption, number, detail."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._caption = Label("", 12, role="muted")
        self._detail = ElidedLabel("", 12, role="muted")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # columns of one width
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(0, 0, 0, 0)
        self.column.setSpacing(1)
        self.column.addWidget(self._caption)
        self._place_value()
        self.column.addWidget(self._detail)

    def _place_value(self) -> None:
        self._value = Label("", _NUMBER_PX, Weight.DemiBold, display=True)
        self.column.addWidget(self._value)

    def _show_value(self, tile: Tile) -> None:
        self._value.say(tile.value)

    def show_tile(self, tile: Tile) -> None:
        self._caption.say(tile.caption)
        self._show_value(tile)
        self._detail.say(tile.detail, tile.tone)
        self.setAccessibleName(tile.spoken)


class ContextTile(NumberTile):
    """The number is a button: a click turns it into a field for an exact context.

    Signals:
        entered: a number of tokens was typed and confirmed.
    """

    entered = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        self._button = QPushButton()
        self._field = QLineEdit()
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
        self._field.editingFinished.connect(self._leave)
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
        self._leave()
        if count is not None:
            self.entered.emit(count)

    def _leave(self) -> None:
        if self.editing:
            self._stack.setCurrentIndex(0)

    @override
    def eventFilter(self, watched: object, event: QEvent) -> bool:
        if watched is not self._field or event.type() is not QEvent.Type.KeyPress:
            return False
        if not isinstance(event, QKeyEvent) or event.key() != Qt.Key.Key_Escape:
            return False
        self._leave()
        self._button.setFocus(Qt.FocusReason.ShortcutFocusReason)
        return True
