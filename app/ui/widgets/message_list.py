"""The scrolling column of messages. It follows the end only while the reader is there."""

from typing import Final

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QScrollArea, QVBoxLayout, QWidget
from typing_extensions import override

from app.ui.theme import Theme
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.focus import focusable, last_in, tab_after
from app.ui.widgets.message_centre import Centred

COLUMN_PX: Final = 780
FOLLOW_PX: Final = 24  # this near to the end counts as being there
_JUMP_GAP_PX: Final = 12


class MessageList(QScrollArea):
    """Rows from top to bottom, in a column of at most 780 px."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAccessibleName("Messages")
        self._rows: list[QWidget] = []
        self._following = True
        self._held_from_end: int | None = None
        column = QWidget()
        self._column = QVBoxLayout(column)
        self._column.setContentsMargins(0, 16, 0, 16)
        self._column.setSpacing(18)
        self._column.addStretch()
        self.setWidget(Centred(column, most_px=COLUMN_PX, margin_px=24))
        self.jump = ActionButton(theme, "Jump to latest", icon="chevron-down", parent=self)
        self.jump.clicked.connect(self.follow)
        self.jump.hide()
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._moved)
        bar.rangeChanged.connect(self._grown)
        bar.actionTriggered.connect(self._let_go)

    @property
    def rows(self) -> tuple[QWidget, ...]:
        return tuple(self._rows)

    @property
    def following(self) -> bool:
        """New text scrolls into view by itself."""
        return self._following

    def add(self, row: QWidget) -> None:
        """Append a row."""
        self.insert(len(self._rows), row)

    def insert(self, index: int, row: QWidget) -> None:
        """Put a row before the one at `index`."""
        before = last_in(self._rows[index - 1]) if index else self
        self._rows.insert(index, row)
        self._column.insertWidget(index, row)
        tab_after(before, [row, *focusable(row)])

    def remove(self, row: QWidget) -> None:
        """Take a row out for good."""
        self._rows.remove(row)
        self._column.removeWidget(row)
        row.hide()
        row.deleteLater()

    def clear(self) -> None:
        """Take all rows out."""
        for row in self.rows:
            self.remove(row)

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._held_from_end = None
        self._following = True
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())
        self._show_jump()

    def hold(self) -> None:
        """Rows are about to be put in above: what is in view stays in view until the reader scrolls."""
        self._held_from_end = self.verticalScrollBar().maximum() - self.verticalScrollBar().value()

    def _let_go(self) -> None:
        self._held_from_end = None

    def _moved(self, value: int) -> None:
        self._following = value >= self.verticalScrollBar().maximum() - FOLLOW_PX
        self._show_jump()

    def _grown(self, _least: int, most: int) -> None:
        if self._held_from_end is not None:
            self.verticalScrollBar().setValue(most - self._held_from_end)
        elif self._following:
            self.verticalScrollBar().setValue(most)
        self._show_jump()

    def _show_jump(self) -> None:
        self.jump.setVisible(not self._following and self.verticalScrollBar().maximum() > 0)
        if self.jump.isVisible():
            self._place_jump()

    def _place_jump(self) -> None:
        size = self.jump.sizeHint()
        x = (self.viewport().width() - size.width()) // 2
        self.jump.setGeometry(x, self.height() - size.height() - _JUMP_GAP_PX, size.width(), size.height())
        self.jump.raise_()

    @override
    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_jump()
