"""Where a message is written: text, context meter, and one button that sends or stops."""

from math import ceil
from typing import Final

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QFontMetricsF, QInputMethodEvent, QKeyEvent, QTextCursor
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget
from typing_extensions import override

from app.ui import icons
from app.ui.theme import Theme, ui_font
from app.ui.widgets.context_meter import ContextMeter

_LEAST_LINES: Final = 2
_MOST_LINES: Final = 8
_ENTER: Final = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


class MessageEdit(QPlainTextEdit):
    """Plain text, as high as its lines up to eight. Enter sends, Shift+Enter starts a new line.

    Signals:
        entered: Enter was pressed, and no input method is composing.
        focus_changed: the keyboard came or went.
    """

    entered = Signal()
    focus_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._composing = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(ui_font(14))
        self.setStyleSheet("background: transparent; border: 0;")
        self.setTabChangesFocus(True)
        self.setPlaceholderText("Write a message. Enter sends, Shift+Enter starts a new line.")
        self.setAccessibleName("Message")
        self.document().documentLayout().documentSizeChanged.connect(self.fit)
        self.fit()

    def fit(self) -> None:
        """As high as the text, from two lines to eight; then it scrolls."""
        lines = min(_MOST_LINES, max(_LEAST_LINES, int(self.document().size().height())))
        height = ceil(lines * QFontMetricsF(self.font()).lineSpacing() + 2 * self.document().documentMargin()) + 2
        if height != self.height():
            self.setFixedHeight(height)

    @override
    def keyPressEvent(self, event: QKeyEvent) -> None:
        plain = not event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier)
        if event.key() in _ENTER and plain and not self._composing:
            event.accept()
            self.entered.emit()
        else:
            super().keyPressEvent(event)

    @override
    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())  # Enter then takes the candidate and must not send
        super().inputMethodEvent(event)

    @override
    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit()

    @override
    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._composing = False
        self.focus_changed.emit()


class Composer(QFrame):
    """Signals:
    send_asked: Enter or the button, with something typed.
    stop_asked: the button, while it stops.
    text_changed: what is typed is different.
    """

    send_asked = Signal()
    stop_asked = Signal()
    text_changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._stops = False
        self.setObjectName("MessageBox")
        self.edit = MessageEdit()
        self.edit.entered.connect(self._enter)
        self.edit.textChanged.connect(self._typed)
        self.edit.focus_changed.connect(self._dress)
        self.meter = ContextMeter(theme)
        self.button = QPushButton()
        self.button.setProperty("kind", "primary")
        self.button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.button.setIconSize(QSize(18, 18))
        # The style sheet's own minimum would win over a fixed size; 36 x 30 and a border of 1 px.
        self.button.setStyleSheet("padding: 0; min-width: 36px; max-width: 36px; min-height: 30px; max-height: 30px;")
        self.button.clicked.connect(self._press)
        row = QHBoxLayout()
        row.setContentsMargins(4, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(self.meter, 1)
        row.addWidget(self.button)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 10, 10, 8)
        column.setSpacing(4)
        column.addWidget(self.edit)
        column.addLayout(row)
        theme.changed.connect(self._dress)
        self._dress()

    @property
    def text(self) -> str:
        """What is typed."""
        return self.edit.toPlainText()

    def set_text(self, text: str) -> None:
        """Replace what is typed; the cursor goes to its end."""
        if text != self.text:
            self.edit.setPlainText(text)
            self.edit.moveCursor(QTextCursor.MoveOperation.End)

    def set_stops(self, stops: bool) -> None:
        """Whether the button stops an answer instead of sending."""
        if stops != self._stops:
            self._stops = stops
            self._dress()

    def _enter(self) -> None:
        if not self._stops and self.text.strip():
            self.send_asked.emit()

    def _press(self) -> None:
        if self._stops:
            self.stop_asked.emit()
        else:
            self._enter()

    def _typed(self) -> None:
        self.button.setEnabled(self._stops or bool(self.text.strip()))
        self.text_changed.emit()

    def _dress(self) -> None:
        tokens = self._theme.tokens
        edge = tokens.accent if self.edit.hasFocus() else tokens.border
        self.setStyleSheet(
            f"#MessageBox {{ background: {tokens.surface}; border: 1px solid {edge}; border-radius: 8px; }}"
        )
        self.button.setIcon(icons.icon("stop" if self._stops else "send", tokens.on_accent, 18, tokens.text3))
        self.button.setToolTip("Stop (Esc)" if self._stops else "Send (Enter)")
        self.button.setAccessibleName("Stop" if self._stops else "Send")
        self.button.setEnabled(self._stops or bool(self.text.strip()))
