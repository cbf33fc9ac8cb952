"""A message as it is read: Markdown that may still be growing.

The view is a column of parts. Prose shares one text widget; a block of code is a widget of its own. While text arrives
only the blocks that can still change are written again, at most once in 40 ms, so the cost of a redraw does not grow
with the message.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from markdown_it.token import Token
from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QTextBlockFormat, QTextCursor
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.chat.markdown import Advance, BlockStream, Code
from app.ui.markdown_writer import MarkdownWriter
from app.ui.theme import Theme
from app.ui.widgets.code_block import CodeBlock
from app.ui.widgets.fitted_text import FittedText
from app.ui.widgets.focus import focusable, last_in, tab_after

FLUSH_MS: Final = 40

_Tokens = Sequence[Token]


class ProsePart(FittedText):
    """Prose blocks, the last of which may be written again."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._final_end = 0  # position where text that can change begins
        self._final_format = QTextBlockFormat()  # of the block it is in
        self._final_fresh = True  # nothing final yet, or a table whose trailing block waits to be used

    def write(self, final: Sequence[_Tokens], unfinished: Sequence[_Tokens]) -> None:
        """Replace what could change: first `final` blocks, which stay, then `unfinished` ones."""
        selected = self.textCursor()
        anchor, position = selected.anchor(), selected.position()
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        cursor.setPosition(self._final_end)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        if not cursor.block().text():  # Qt gives an empty block, such as a rule, the format of what was removed
            cursor.setBlockFormat(self._final_format)
        writer = MarkdownWriter(self._theme.tokens)
        writer.fresh = self._final_fresh
        if final:
            writer.write(cursor, final)
            cursor.movePosition(QTextCursor.MoveOperation.End)
            self._final_end, self._final_fresh = cursor.position(), writer.fresh
            self._final_format = cursor.blockFormat()
        writer.write(cursor, unfinished)
        cursor.endEditBlock()
        if anchor != position:
            self._select(anchor, position)

    def _select(self, anchor: int, position: int) -> None:
        """Put a selection back that the edit stretched or cut."""
        end = self.document().characterCount() - 1
        selected = self.textCursor()
        selected.setPosition(min(anchor, end))
        selected.setPosition(min(position, end), QTextCursor.MoveMode.KeepAnchor)
        self.setTextCursor(selected)


Part = ProsePart | CodeBlock
_Part = TypeVar("_Part", ProsePart, CodeBlock)


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
        self._clear_from(0)
        self._kept = 0
        self._stream = BlockStream()
        self._stream.feed(text)
        self.finish()

    def _show(self, advance: Advance) -> None:
        if advance.from_start:
            self._clear_from(0)
            self._kept = 0
        runs = _runs(advance)
        index = self._kept
        if index and isinstance(last := self._parts[index - 1], ProsePart):
            if runs and isinstance(runs[0], _ProseRun):
                index -= 1  # more prose goes on where the last ended
            else:
                last.write((), ())  # what could still change there turned out to be code
        for run in runs:
            if isinstance(run, _ProseRun):
                self._prose_at(index).write(run.final, run.unfinished)
            else:
                self._code_at(index, run.code.language).show_code(run.code.code, closed=run.is_final)
            index += 1
            if run.is_final:
                self._kept = index
        self._clear_from(index)
        self.grew.emit()

    def _prose_at(self, index: int) -> ProsePart:
        if index < len(self._parts) and isinstance(part := self._parts[index], ProsePart):
            return part
        return self._append(index, ProsePart(self._theme))

    def _code_at(self, index: int, language: str) -> CodeBlock:
        if index < len(self._parts) and isinstance(part := self._parts[index], CodeBlock) and part.language == language:
            return part
        return self._append(index, CodeBlock(self._theme, language))

    def _append(self, index: int, part: _Part) -> _Part:
        self._clear_from(index)
        before = last_in(self._parts[-1]) if self._parts else self
        self._parts.append(part)
        self._column.addWidget(part)
        tab_after(before, [part, *focusable(part)])
        return part

    def _write_again(self) -> None:
        """Colours are part of the text, so another theme means writing it anew."""
        source = self.source
        self._clear_from(0)
        self._kept = 0
        self._stream = BlockStream()
        self._stream.feed(source)
        if self._closed:
            self.finish()
        else:
            self.flush()

    def _clear_from(self, index: int) -> None:
        for part in self._parts[index:]:
            self._column.removeWidget(part)
            part.hide()
            part.deleteLater()
        del self._parts[index:]


@dataclass(slots=True)
class _ProseRun:
    """Neighbouring blocks of prose; they share one widget."""

    final: list[_Tokens] = field(default_factory=list)
    unfinished: list[_Tokens] = field(default_factory=list)

    @property
    def is_final(self) -> bool:
        """Some of it stays, so the widget does."""
        return bool(self.final)


@dataclass(slots=True)
class _CodeRun:
    code: Code
    is_final: bool


def _runs(advance: Advance) -> list[_ProseRun | _CodeRun]:
    """Blocks by the widget they go into."""
    runs: list[_ProseRun | _CodeRun] = []
    blocks = [(block, True) for block in advance.final] + [(block, False) for block in advance.open]
    for block, is_final in blocks:
        if isinstance(block, Code):
            runs.append(_CodeRun(block, is_final))
            continue
        if not runs or not isinstance(runs[-1], _ProseRun):
            runs.append(_ProseRun())
        run = runs[-1]
        assert isinstance(run, _ProseRun)
        (run.final if is_final else run.unfinished).append(block.tokens)
    return runs
