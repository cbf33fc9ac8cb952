"""The open chat between the store on disk and the queue of answers, without a widget.

Everything the user writes is on disk before anything else happens to it. A message sent while the engine is not ready,
while its split is being changed, or while another chat is answered, waits its turn.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from PySide6.QtCore import QObject, Signal

from app.chat.context_use import ANSWER_ROOM_TOKENS, context_use, oldest_to_leave_out
from app.chat.conversation import Conversation, Message
from app.chat.errors import ChatStoreError
from app.chat.export import write_markdown
from app.chat.phrases import prefill_line, writing_line
from app.chat.store import ChatStore, ChatSummary
from app.core.session import EngineStage, SessionState
from app.link.answer_queue import AnswerQueue
from app.link.stream import BROKEN_KINDS, ChatStream
from engine.contract.errors import Problem, SplitpinError

TOO_LONG: Final = "context_length_exceeded"


class ChatFlow(QObject):
    """One chat is open; others may wait for an answer or get one.

    Signals:
        opened: another chat is open, or none (`conversation` says which); show it all.
        added: the open chat has one more message (`Message`).
        removed: the open chat has lost its message of this id (int).
        delta: more text of the answer that the open chat is getting (str).
        ended: the answer of the open chat is as it stays (`Message`).
        changed: status, problem, waiting or writing of the open chat may be different.
        chats_changed: the list of chats may be different.
    """

    opened = Signal()
    added = Signal(object)
    removed = Signal(int)
    delta = Signal(str)
    ended = Signal(object)
    changed = Signal()
    chats_changed = Signal()

    def __init__(self, store: ChatStore, stream: ChatStream, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._stream = stream
        self._state = SessionState()
        self._open: Conversation | None = None
        self._problems: dict[int | None, Problem] = {}
        self._queue = AnswerQueue(store, stream, self)
        self._queue.begun.connect(self._answer_begun)
        self._queue.delta.connect(self._answer_grew)
        self._queue.ended.connect(self._answer_ended)
        self._queue.removed.connect(self._answer_removed)
        self._queue.failed.connect(self._answer_failed)
        self._queue.changed.connect(self.changed)

    # what there is to see

    @property
    def conversation(self) -> Conversation | None:
        """The open chat; None is a chat without messages, which is not on disk yet."""
        return self._open

    @property
    def chat_id(self) -> int | None:
        return None if self._open is None else self._open.id

    @property
    def writing(self) -> bool:
        """The open chat is getting an answer."""
        return self._open is not None and self._queue.answered_id == self._open.id

    @property
    def waiting(self) -> bool:
        """The last message of the open chat waits to be sent."""
        return self._queue.waits(self.chat_id)

    @property
    def answer_so_far(self) -> str:
        """Text of the answer being written in the open chat."""
        return self._queue.text if self.writing else ""

    @property
    def written_tokens(self) -> int:
        """About how many tokens `answer_so_far` has."""
        return self._stream.text_events if self.writing else 0

    @property
    def problem(self) -> Problem | None:
        """What went wrong last in the open chat."""
        return self._problems.get(self.chat_id)

    @property
    def status(self) -> str:
        """One line about the answer that the open chat is getting; "" if none."""
        if self.waiting:
            if self._queue.answered_id is not None:
                return "Waits until the answer in another chat is complete"
            if (change := self._state.change) is not None:
                return "Waits until the engine was started again" if change.restart else "Waits for the new split"
            return "Waits until the engine is ready"
        if not self.writing:
            return ""
        if self._stream.text_events:
            return writing_line(self._stream.text_events, self._stream.text_events_per_s)
        request = self._state.request
        if request is not None and request.prefilled_tokens < request.prompt_tokens:
            return prefill_line(request.prefilled_tokens, request.prompt_tokens)
        return "Waiting for the first token"

    @property
    def leave_out_count(self) -> int:
        """How many of the oldest messages to leave out so that a refused chat fits; 0 if that is not the cure."""
        problem, context_tokens = self.problem, self._context_tokens
        if self._open is None or problem is None or problem.kind != TOO_LONG or context_tokens is None:
            return 0
        messages = self._open.sent_messages
        counted = problem.numbers.get("prompt_tokens")
        estimated = max(context_use(messages).tokens, context_tokens + ANSWER_ROOM_TOKENS)
        prompt_tokens = counted if isinstance(counted, int) else estimated
        return oldest_to_leave_out(messages, prompt_tokens=prompt_tokens, context_tokens=context_tokens)

    @property
    def _context_tokens(self) -> int | None:
        return None if self._state.plan is None else self._state.plan.context_tokens

    # what the user does

    def dismiss_problem(self) -> None:
        """The user has read what went wrong in the open chat."""
        self._problems.pop(self.chat_id, None)
        self.changed.emit()

    def chats(self, containing: str = "") -> list[ChatSummary]:
        """The list of chats, or those with a text in them; empty if the disk refuses, which `problem` then says."""
        try:
            return self._store.chats(containing)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)
            return []

    def open(self, chat_id: int | None) -> None:
        """Open a chat, or with None begin a new one. An answer under way goes on in its own chat."""
        try:
            self._open = None if chat_id is None else self._store.load(chat_id)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)
            return
        self.opened.emit()
        self.changed.emit()

    def send(self, text: str) -> bool:
        """Keep a message and have it answered as soon as possible. False if it was not taken: it stays typed.

        Empty lines around the text and blanks behind it are dropped; blanks before it may be part of code.
        """
        text = text.rstrip().lstrip("\r\n")
        if not text or self.writing or self.waiting:
            return False
        try:
            if self._open is None:
                self._open = self._store.start_chat(text)
                self._problems.pop(None, None)
                self.opened.emit()
            else:
                message = self._store.add_user_message(self._open.id, text)
                self._append(message)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)
            return False
        self.chats_changed.emit()
        self.answer_last()
        return True

    def answer_last(self) -> None:
        """Ask for an answer to the last message, again if need be."""
        if self._open is None or not self._open.unanswered or self.writing or self.waiting:
            return
        self._problems.pop(self._open.id, None)
        self._queue.add(self._open.id)

    def stop(self) -> None:
        """Stop the answer of the open chat, or stop waiting for one."""
        if self._open is not None:
            self._queue.drop(self._open.id)

    def take_back(self) -> str:
        """Remove the last message if nobody has answered it, and return its text."""
        if self._open is None or not self._open.unanswered or self.writing:
            return ""
        last = self._open.messages[-1]
        self.stop()
        try:
            self._store.remove_message(last.id)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)
            return ""
        self._problems.pop(self._open.id, None)
        self._remove(last.id)
        if not self._open.messages:
            self.delete(self._open.id)
        self.changed.emit()
        return last.text

    def leave_out_oldest(self) -> None:
        """Send from a later message on, and ask again."""
        count = self.leave_out_count
        if self._open is None or not count:
            return
        first = self._open.sent_messages[count].id
        try:
            self._store.send_from(self._open.id, first)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)
            return
        self._open = replace(self._open, sent_from_id=first)
        self._problems.pop(self._open.id, None)
        self.opened.emit()
        self.answer_last()

    def rename(self, chat_id: int, title: str) -> None:
        """Give a chat another title."""
        try:
            self._store.rename(chat_id, title)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)
            return
        if self._open is not None and self._open.id == chat_id:
            self._open = replace(self._open, title=title)
        self.chats_changed.emit()
        self.changed.emit()

    def save_as(self, chat_id: int, file: Path) -> None:
        """Write a chat into a Markdown file; what stands in the way is a problem of the open chat."""
        try:
            if (chat := self._store.load(chat_id)) is not None:
                write_markdown(chat, file)
        except SplitpinError as error:
            self._note(self.chat_id, error.problem)

    def delete(self, chat_id: int) -> None:
        """Remove a chat for good; an answer it is getting is stopped."""
        self._queue.drop(chat_id)
        try:
            self._store.delete(chat_id)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)
            return
        self._problems.pop(chat_id, None)
        if self.chat_id == chat_id:
            self.open(None)
        self.chats_changed.emit()

    def draft(self) -> str:
        """What was typed into the open chat and not sent."""
        try:
            return self._store.draft(self.chat_id)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)
            return ""

    def save_draft(self, text: str) -> None:
        """Keep what is typed."""
        try:
            self._store.save_draft(self.chat_id, text)
        except ChatStoreError as error:
            self._note(self.chat_id, error.problem)

    # what the engine does

    def show_session(self, state: SessionState) -> None:
        """The engine's state: a waiting message is sent when it is ready."""
        self._state = state
        if state.stage is EngineStage.FAILED:  # why it ended explains more than that the connection broke
            kept = {chat: problem for chat, problem in self._problems.items() if problem.kind not in BROKEN_KINDS}
            self._problems = kept
        self._queue.show_session(state)

    def save_now(self) -> None:
        """Put the answer so far on disk: the window is closing."""
        self._queue.save_now()

    def _answer_begun(self, chat_id: int, message: Message) -> None:
        if chat_id == self.chat_id:
            self._append(message)

    def _answer_grew(self, chat_id: int, text: str) -> None:
        if chat_id == self.chat_id:
            self.delta.emit(text)

    def _answer_ended(self, chat_id: int, message: Message) -> None:
        if self._open is not None and chat_id == self._open.id:
            self._open = replace(self._open, messages=(*self._open.messages[:-1], message))
            self.ended.emit(message)

    def _answer_removed(self, chat_id: int, message_id: int) -> None:
        if chat_id == self.chat_id:
            self._remove(message_id)

    def _answer_failed(self, chat_id: int, problem: Problem) -> None:
        if self._state.stage is not EngineStage.FAILED or problem.kind not in BROKEN_KINDS:
            self._note(chat_id, problem)

    # keeping

    def _note(self, chat_id: int | None, problem: Problem) -> None:
        self._problems[chat_id] = problem
        self.changed.emit()

    def _append(self, message: Message) -> None:
        if self._open is not None:
            self._open = replace(self._open, messages=(*self._open.messages, message))
            self.added.emit(message)

    def _remove(self, message_id: int) -> None:
        if self._open is not None:
            kept = tuple(message for message in self._open.messages if message.id != message_id)
            self._open = replace(self._open, messages=kept)
            self.removed.emit(message_id)
