"""A block of code in a message: language, Copy button, colours, its own horizontal scrolling."""

from math import ceil
from typing import Final

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import (
    QColor,
    QGuiApplication,
    QSyntaxHighlighter,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QPushButton, QSizePolicy, QVBoxLayout, QWidget
from typing_extensions import override

from app.chat.highlight import Line, SyntaxKind, highlighted
from app.ui import icons
from app.ui.theme import Theme, mono_font, ui_font
from app.ui.widgets.label import Label

CODE_PX: Final = 13
_COPIED_MS: Final = 1500
_EAGER_CHARACTERS: Final = 4_000  # longer code is coloured line by line while it is written
_LATE_CHARACTERS: Final = 20_000  # and this long only once, at the end

_DARK: Final[dict[SyntaxKind, str]] = {
    "keyword": "#7FB7FF",
    "name": "#5FE0B4",
    "builtin": "#8FC7E8",
    "string": "#E8C07A",
    "number": "#D8A6F0",
    "comment": "#8791A3",
    "operator": "#C3CAD6",
    "error": "#FF7A70",
}
_LIGHT: Final[dict[SyntaxKind, str]] = {
    "keyword": "#0F4FA8",
    "name": "#0B6B4F",
    "builtin": "#1A6A86",
    "string": "#8A4B00",
    "number": "#7A3E9D",
    "comment": "#636C7A",
    "operator": "#3A414D",
    "error": "#B8261B",
}


class CodeHighlighter(QSyntaxHighlighter):
    """Colours lines by spans computed elsewhere; only lines whose spans changed are touched."""

    def __init__(self, document: QTextDocument, theme: Theme) -> None:
        super().__init__(document)
        self._theme = theme
        self._lines: list[Line] = []

    def show_lines(self, lines: list[Line]) -> None:
        before, self._lines = self._lines, lines
        block = self.document().firstBlock()
        while block.isValid():
            number = block.blockNumber()
            spans = lines[number] if number < len(lines) else ()
            if spans != (before[number] if number < len(before) else ()):
                self.rehighlightBlock(block)
            block = block.next()

    @override
    def highlightBlock(self, text: str) -> None:
        number = self.currentBlock().blockNumber()
        colors = _LIGHT if self._theme.tokens.is_light else _DARK
        for span in self._lines[number] if number < len(self._lines) else ():
            made = QTextCharFormat()
            made.setForeground(QColor(colors[span.kind]))
            self.setFormat(span.start, span.length, made)


class CodeText(QPlainTextEdit):
    """The code itself: read-only, never scrolls vertically."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setTabChangesFocus(True)
        self.setUndoRedoEnabled(False)
        self.setFont(mono_font(CODE_PX))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)  # or the message takes all the room
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setStyleSheet("background: transparent;")
        self.document().setDocumentMargin(10)
        self.horizontalScrollBar().rangeChanged.connect(self.fit)
        self.fit()

    def fit(self) -> None:
        """As high as the lines, and the scroll bar where there is one."""
        last = self.document().lastBlock()
        self.blockBoundingRect(last)  # lays it out
        line_px = last.layout().lineAt(0).height()
        height = ceil(max(1, self.blockCount()) * line_px + 2 * self.document().documentMargin()) + 1
        if self.horizontalScrollBar().maximum() > 0:
            height += self.horizontalScrollBar().sizeHint().height()
        if height != self.height():
            self.setFixedHeight(height)

    @override
    def wheelEvent(self, event: QWheelEvent) -> None:
        sideways = event.angleDelta().x() or event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        if sideways and self.horizontalScrollBar().maximum() > 0:
            super().wheelEvent(event)
        else:
            event.ignore()  # the page scrolls


class CodeBlock(QFrame):
    """One fenced block. While it grows, text is appended and only changed lines are coloured again."""

    def __init__(self, theme: Theme, language: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.language = language
        self.code = ""
        self._coloured_lines = -1
        named = language or "text"
        self.setObjectName("CodeBlock")
        self._label = Label(named, 12, role="muted")
        self._copy = QPushButton("Copy")
        self._copy.setProperty("kind", "ghost")
        self._copy.setFont(ui_font(12))
        self._copy.setIconSize(QSize(16, 16))
        self._copy.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._copy.setAccessibleName(f"Copy {named} code")
        self._copy.clicked.connect(self.copy)
        self._copied = QTimer(self)
        self._copied.setSingleShot(True)
        self._copied.setInterval(_COPIED_MS)
        self._copied.timeout.connect(lambda: self._copy.setText("Copy"))
        self.text = CodeText()
        self.text.setAccessibleName(f"{named} code block")
        self._highlighter = CodeHighlighter(self.text.document(), theme)
        head = QHBoxLayout()
        head.setContentsMargins(11, 4, 5, 0)
        head.addWidget(self._label)
        head.addStretch()
        head.addWidget(self._copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 1, 1, 1)
        column.setSpacing(0)
        column.addLayout(head)
        column.addWidget(self.text)
        self._dress()
        theme.changed.connect(self._dress)

    def show_code(self, code: str, *, closed: bool) -> None:
        """The code so far; `closed` when it will not change again."""
        if code != self.code:
            if code.startswith(self.code):
                end = QTextCursor(self.text.document())
                end.movePosition(QTextCursor.MoveOperation.End)
                end.insertText(code[len(self.code) :])
            else:
                self.text.setPlainText(code)
                self._coloured_lines = -1
            self.code = code
            self.text.fit()
        lines = self.text.blockCount()
        if closed:
            self._colour()
        elif len(code) < _EAGER_CHARACTERS or (len(code) < _LATE_CHARACTERS and lines != self._coloured_lines):
            self._coloured_lines = lines
            self._colour()

    def copy(self) -> None:
        """Put the code on the clipboard."""
        QGuiApplication.clipboard().setText(self.code)
        self._copy.setText("Copied")
        self._copied.start()

    def _colour(self) -> None:
        self._highlighter.show_lines(highlighted(self.code, self.language))

    def _dress(self) -> None:
        tokens = self._theme.tokens
        self.setStyleSheet(
            f"#CodeBlock {{ background: {tokens.code_bg}; border: 1px solid {tokens.border}; border-radius: 8px; }}"
        )
        self._copy.setIcon(icons.icon("copy", tokens.text2, 16))
        self._highlighter.rehighlight()
