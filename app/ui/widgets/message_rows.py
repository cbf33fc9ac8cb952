"""What the message column is made of: what the user wrote, what the model replied, and a line between."""

from typing import Final

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QResizeEvent, QTextBlockFormat, QTextCursor
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget
from typing_extensions import override

from app.chat.conversation import Message
from app.chat.phrases import stats_line
from app.ui.markdown_writer import BODY_PX
from app.ui.theme import Theme, ui_font
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.card import Line
from app.ui.widgets.fitted_text import FittedText
from app.ui.widgets.icon_button import IconButton
from app.ui.widgets.label import ElidedLabel, Label
from app.ui.widgets.markdown_view import MarkdownView

BUBBLE_PX: Final = 560
_BUBBLE_PAD_PX: Final = 14
_MEASURED_LINES: Final = 200  # a bubble with more lines than this is as wide as it may be


class UserRow(QWidget):
    """The user's message in a bubble at the right, as plain text."""

    def __init__(self, theme: Theme, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message_id = message.id
        self._theme = theme
        self.setAccessibleName("You wrote")
        self.text = FittedText(theme)
        self.text.setFont(ui_font(BODY_PX))
        self.text.setPlainText(message.text)
        self.text.setAccessibleName("Your message")
        cursor = QTextCursor(self.text.document())
        cursor.select(QTextCursor.SelectionType.Document)
        lines = QTextBlockFormat()
        lines.setLineHeight(128, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        cursor.mergeBlockFormat(lines)
        self._ideal_px = self._widest(message.text)
        self._bubble = QFrame()
        self._bubble.setObjectName("UserBubble")
        inside = QVBoxLayout(self._bubble)
        inside.setContentsMargins(_BUBBLE_PAD_PX, 9, _BUBBLE_PAD_PX, 4)  # the last line has its leading below
        inside.addWidget(self.text)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addStretch()
        row.addWidget(self._bubble)
        theme.changed.connect(self._dress)
        self._dress()

    @override
    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._bubble.setFixedWidth(min(BUBBLE_PX, event.size().width(), self._ideal_px))

    @override
    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def _widest(self, text: str) -> int:
        metrics = QFontMetricsF(self.text.font())
        lines = text.split("\n", _MEASURED_LINES)
        if len(lines) > _MEASURED_LINES:
            return BUBBLE_PX
        widest = max(metrics.horizontalAdvance(line[:BUBBLE_PX]) for line in lines)
        return int(widest) + 2 * _BUBBLE_PAD_PX + 6

    def _dress(self) -> None:
        tokens = self._theme.tokens
        self._bubble.setStyleSheet(
            f"#UserBubble {{ background: {tokens.accent_soft}; border: 1px solid {tokens.border};"
            " border-radius: 10px; }"
        )


class AnswerRow(QWidget):
    """The model's answer at full width; below it Copy and the numbers, or one status line while it is written."""

    def __init__(self, theme: Theme, message_id: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message_id = message_id
        self.setAccessibleName("The model replied")
        self.body = MarkdownView(theme)
        self._copy = IconButton(theme, "copy", "Copy message")
        self._copy.clicked.connect(self.copy)
        self.line = ElidedLabel("", 12, role="muted")
        foot = QHBoxLayout()
        foot.setContentsMargins(0, 0, 0, 0)
        foot.setSpacing(6)
        foot.addWidget(self._copy)
        foot.addWidget(self.line, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.body)
        column.addLayout(foot)
        self._copy.hide()

    @override
    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def show_status(self, text: str) -> None:
        """While the answer is written."""
        self.line.say(text, role="muted")

    def show_ended(self, message: Message) -> None:
        """The answer as it stays."""
        line = stats_line(message.stats, message.end)
        self.line.say(line, role="faint")
        measured = message.stats is not None and message.stats.measured_by == "window"
        source = "Measured by this window" if measured else "Reported by the engine"
        self.line.setAccessibleName(f"{line}. {source}" if line else "")
        name = message.stats.model if message.stats is not None else None
        self.setAccessibleName(f"{name or 'The model'} replied")
        self.setAccessibleDescription(line)
        self._copy.setVisible(bool(message.text))

    def copy(self) -> None:
        """Put the Markdown of the answer on the clipboard."""
        QGuiApplication.clipboard().setText(self.body.source)


class DividerRow(QWidget):
    """A line with words, such as where the part begins that the engine gets."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        label = Label(text, 12, role="faint")
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        row.addWidget(Line(), 1, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(label)
        row.addWidget(Line(), 1, Qt.AlignmentFlag.AlignVCenter)


class QuietRow(QWidget):
    """At the right, below a message of the user: why it has no answer, and what can be done.

    Signals:
        acted: a button was pressed (its id).
    """

    acted = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._shown: tuple[str, tuple[tuple[str, str], ...]] = ("", ())
        self._buttons: list[ActionButton] = []
        self._label = Label("", 12, role="muted")
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(6)
        self._row.addStretch()
        self._row.addWidget(self._label)
        self.hide()

    def show_words(self, text: str, actions: tuple[tuple[str, str], ...] = ()) -> None:
        """Words and buttons as (label, id); without words the row is gone."""
        if (text, actions) == self._shown:
            return
        self._shown = (text, actions)
        self._label.say(text)
        for button in self._buttons:
            self._row.removeWidget(button)
            button.hide()
            button.deleteLater()
        self._buttons = []
        for label, action in actions:
            button = ActionButton(self._theme, label, kind="link")
            button.clicked.connect(lambda _=False, action=action: self.acted.emit(action))
            self._row.addWidget(button)
            self._buttons.append(button)
        self.setVisible(bool(text))
