"""A message as it is read: Markdown that may still be growing.

The view is a column of parts. Prose shares one text widget; a block of code is a widget of its own. While text arrives
only the blocks that can still change are written again, at most once in 40 ms, so the cost of a redraw does not grow
with the message.
"""

from collections.abc import Sequence
from typing import Final

from markdown_it.token import Token
from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QTextBlockFormat, QTextCursor
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.chat.markdown import Advance, Block, BlockStream, Code
from app.ui.markdown_writer import MarkdownWriter
from app.ui.theme import Theme
from app.ui.widgets.code_block import CodeBlock
from app.ui.widgets.fitted_text import FittedText

FLUSH_MS: Final = 40

_Tokens = Sequence[Token]


class ProsePart(FittedText):
    """Prose blocks, the last of which may be written again."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._final_end = 0  # position where text that can change begins
        self._final_fresh = True  # nothing final yet, or a table whose trailing block waits to be used

    @property
    def has_final_text(self) -> bool:
        return self._final_end > 0

    def write(self, final: Sequence[_Tokens], unfinished: Sequence[_Tokens]) -> None:
        """Replace what could change: first `final` blocks, which stay, then `unfinished` ones."""
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        cursor.setPosition(self._final_end)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        if self._final_end == 0:
            cursor.setBlockFormat(QTextBlockFormat())
        writer = MarkdownWriter(self._theme.tokens)
        writer.fresh = self._final_fresh
        if final:
            writer.write(cursor, final)
            cursor.movePosition(QTextCursor.MoveOperation.End)
            self._final_end, self._final_fresh = cursor.position(), writer.fresh
        writer.write(cursor, unfinished)
        cursor.endEditBlock()


Part = ProsePart | CodeBlock


class MarkdownView(QWidget):
    """Call `feed` as often as you like, then `finish`; or `set_markdown` for a whole text.

    Signals:
        grew: the height may have changed.
    """

    grew = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None, *, flush_ms: int = FLUSH_MS) -> None:
        super().__init__(parent)
        self._theme = theme
        self._stream = BlockStream()
        self._parts: list[Part] = []
        self._kept = 0  # parts before this one are final; the last of them may still take prose
        self._closed = False
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(flush_ms)
        self._timer.timeout.connect(self.flush)
        theme.changed.connect(self._write_again)

    @property
    def source(self) -> str:
        """The Markdown."""
        return self._stream.source

    @property
    def parts(self) -> tuple[Part, ...]:
        """Prose and code, from top to bottom."""
        return tuple(self._parts)

    def feed(self, text: str) -> None:
        """Append text; it shows within the flush interval."""
        self._stream.feed(text)
        if not self._timer.isActive():
            self._timer.start()

    def flush(self) -> None:
        """Show what arrived."""
        self._timer.stop()
        self._show(self._stream.advance())

    def finish(self) -> None:
        """No more text comes."""
        self._timer.stop()
        self._closed = True
        self._show(self._stream.finish())

    def set_markdown(self, text: str) -> None:
        """Show a whole text instead of what was there."""
        self._timer.stop()
        self._clear_from(0)
        self._kept = 0
        self._stream = BlockStream()
        self._stream.feed(text)
        self.finish()

    def _show(self, advance: Advance) -> None:
        if advance.from_start:
            self._clear_from(0)
            self._kept = 0
        place = self._place(advance.final, final=True, at=self._start())
        self._kept = place
        place = self._place(advance.open, final=False, at=self._start(), first_is_kept=self._takes_prose)
        self._clear_from(place)
        self.grew.emit()

    def _clear_from(self, index: int) -> None:
        for part in self._parts[index:]:
            self._column.removeWidget(part)
            part.hide()
            part.deleteLater()
        del self._parts[index:]
