"""The messages of the open chat as rows, kept in step with the flow."""

from typing import Final

from PySide6.QtCore import Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.chat.conversation import AnswerEnd, Message, Role
from app.link.chat_flow import ChatFlow
from app.ui.notices import Notice
from app.ui.pages import chat_words
from app.ui.pages.chat_words import problem_notice, unanswered_words
from app.ui.theme import Theme
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.banner_stack import BannerStack
from app.ui.widgets.code_block import CodeBlock
from app.ui.widgets.message_list import MessageList
from app.ui.widgets.message_rows import AnswerRow, DividerRow, QuietRow, UserRow

MOST_ROWS: Final = 40  # messages built at once; a widget costs about 25 ms and 1 MiB
_TAIL_ROWS: Final = 2  # below the messages: the quiet row and the notice
LEFT_OUT: Final = "The engine gets what is below"


class ChatColumn(QWidget):
    """Message rows, and below them one notice about the last message if there is something to say.

    Signals:
        take_back_asked: the last message is to go back to where it was typed.
        end_engine_asked: the engine does not answer and is to be ended.
    """

    take_back_asked = Signal()
    end_engine_asked = Signal()

    def __init__(self, theme: Theme, flow: ChatFlow, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._flow = flow
        self._earliest = 0  # index of the first message that has a row
        self._earlier: ActionButton | None = None
        self.last_log_line = ""  # of the engine
        self.list = MessageList(theme)
        self._tail = BannerStack(theme)
        self._tail.acted.connect(lambda _notice, action: self._act(action))
        self._quiet = QuietRow(theme)
        self._quiet.acted.connect(self._act)
        self.list.add(self._quiet)
        self.list.add(self._tail)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.list)
        flow.opened.connect(self._show_all)
        flow.added.connect(self._add)
        flow.removed.connect(self._remove)
        flow.delta.connect(self._feed)
        flow.ended.connect(self._end)
        flow.changed.connect(self._refresh)

    @property
    def answers(self) -> list[AnswerRow]:
        """The rows of the model, from top to bottom."""
        return [row for row in self.list.rows if isinstance(row, AnswerRow)]

    def copy_last_answer(self) -> None:
        if self.answers:
            self.answers[-1].copy()

    def copy_last_code(self) -> None:
        blocks = [part for row in self.answers for part in row.body.parts if isinstance(part, CodeBlock)]
        if blocks:
            blocks[-1].copy()

    # rows

    def _show_all(self) -> None:
        for row in self.list.rows:
            if row not in (self._quiet, self._tail):
                self.list.remove(row)
        self._earlier = None
        chat = self._flow.conversation
        if chat is None:
            return
        self._earliest = max(0, len(chat.messages) - MOST_ROWS)
        for message in chat.messages[self._earliest :]:
            self._place(len(self.list.rows) - _TAIL_ROWS, message)
        self._offer_earlier()
        self.list.follow()

    def _show_earlier(self) -> None:
        chat = self._flow.conversation
        if chat is None:
            return
        self.list.hold()
        end = self._earliest
        self._earliest = max(0, end - MOST_ROWS)
        place = 1  # after the button
        for message in chat.messages[self._earliest : end]:
            place += self._place(place, message)
        self._offer_earlier()

    def _offer_earlier(self) -> None:
        if self._earliest and self._earlier is None:
            self._earlier = ActionButton(self._theme, "Show earlier messages", kind="ghost")
            self._earlier.clicked.connect(self._show_earlier)
            self.list.insert(0, self._earlier)
        elif not self._earliest and self._earlier is not None:
            self.list.remove(self._earlier)
            self._earlier = None

    def _place(self, index: int, message: Message) -> int:
        """Insert the rows of one message; how many there are."""
        chat = self._flow.conversation
        rows: list[QWidget] = []
        if chat is not None and message.id == chat.sent_from_id:
            rows.append(DividerRow(LEFT_OUT))
        rows.append(self._row(message))
        for offset, row in enumerate(rows):
            self.list.insert(index + offset, row)
        return len(rows)

    def _row(self, message: Message) -> QWidget:
        if message.role is Role.USER:
            return UserRow(self._theme, message)
        row = AnswerRow(self._theme, message.id)
        if message.end is AnswerEnd.WRITING:
            row.body.feed(self._flow.answer_so_far)
        else:
            row.body.set_markdown(message.text)
            row.show_ended(message)
        return row

    # what the flow says

    def _add(self, message: Message) -> None:
        self._place(len(self.list.rows) - _TAIL_ROWS, message)
        if message.role is Role.USER:
            self.list.follow()

    def _remove(self, message_id: int) -> None:
        for row in self.list.rows:
            if isinstance(row, UserRow | AnswerRow) and row.message_id == message_id:
                self.list.remove(row)

    def _feed(self, text: str) -> None:
        if self.answers:
            row = self.answers[-1]
            is_first = not row.body.source
            row.body.feed(text)
            if is_first:  # no word of waiting below the first words
                row.show_status(self._flow.status)

    def _end(self, message: Message) -> None:
        for row in self.answers:
            if row.message_id == message.id:
                row.body.finish()
                row.show_ended(message)
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, "Answer complete"))

    def _refresh(self) -> None:
        if self._flow.writing and self.answers:
            self.answers[-1].show_status(self._flow.status)
        flow = self._flow
        unanswered = flow.conversation is not None and flow.conversation.unanswered and not flow.writing
        notices: tuple[Notice, ...] = ()
        if flow.problem is not None:
            notice = problem_notice(
                flow.problem,
                unanswered=unanswered,
                leave_out_count=flow.leave_out_count,
                last_log_line=self.last_log_line,
            )
            notices = (notice,)
        self._tail.show_notices(notices)
        if unanswered and not notices:
            self._quiet.show_words(*unanswered_words(flow.status))
        else:
            self._quiet.show_words("")

    def _act(self, action: str) -> None:
        match action:
            case chat_words.SEND_AGAIN:
                self._flow.answer_last()
            case chat_words.LEAVE_OUT:
                self._flow.leave_out_oldest()
            case chat_words.TAKE_BACK:
                self.take_back_asked.emit()
            case chat_words.END_ENGINE:
                self._flow.dismiss_problem()
                self.end_engine_asked.emit()
            case chat_words.DISMISS:
                self._flow.dismiss_problem()
            case _:
                raise ValueError(f"no such action: {action!r}")
