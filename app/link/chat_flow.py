"""The life of chats between the store on disk and the stream of the engine, without a widget.

Everything the user writes is on disk before anything else happens to it; an answer is saved once a second while it is
written. A message sent while the engine is not ready, or while another chat is answered, waits its turn.
"""

import logging
from dataclasses import dataclass, replace
from typing import Final

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.context_use import ANSWER_ROOM_TOKENS, context_use, oldest_to_leave_out
from app.chat.conversation import AnswerEnd, AnswerStats, Conversation, Message, openai_messages
from app.chat.errors import ChatStoreError
from app.chat.phrases import prefill_line, writing_line
from app.chat.store import ChatStore, ChatSummary
from app.core.session import EngineStage, SessionState
from app.link.stream import STOPPED, ChatResult, ChatStream
from engine.contract.errors import Problem

logger = logging.getLogger(__name__)

TOO_LONG: Final = "context_length_exceeded"
_SAVE_MS: Final = 1000
_STATUS_MS: Final = 200
_ENDS: Final = {"stop": AnswerEnd.NORMAL, "cancelled": AnswerEnd.INTERRUPTED, STOPPED: AnswerEnd.STOPPED_BY_USER}


@dataclass(slots=True)
class _Answer:
    """The answer being written."""

    chat_id: int
    message: Message
    text: str = ""


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
        self._waiting: list[int] = []
        self._answer: _Answer | None = None
        self._problems: dict[int | None, Problem] = {}
        self._save = _repeating(self, _SAVE_MS, self._save_answer)
        self._tick = _repeating(self, _STATUS_MS, self.changed.emit)
        stream.delta.connect(self._take)
        stream.finished.connect(self._finished)
        stream.failed.connect(self._failed)

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
        return self._answer is not None and self._answer.chat_id == self.chat_id

    @property
    def waiting(self) -> bool:
        """The last message of the open chat waits to be sent."""
        return self.chat_id in self._waiting

    @property
    def answer_so_far(self) -> str:
        """Text of the answer being written in the open chat."""
        return self._answer.text if self._answer is not None and self.writing else ""

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
            if self._answer is not None:
                return "Waits until the answer in another chat is complete"
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

    @property
    def _model(self) -> str | None:
        return None if self._state.plan is None else self._state.plan.model.name

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
        """Keep a message and have it answered as soon as possible. False if it was not taken: it stays typed."""
        if not text.strip() or self.writing or self.waiting:
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
        self._waiting.append(self._open.id)
        self._pump()

    def stop(self) -> None:
        """Stop the answer of the open chat, or stop waiting for one."""
        if self.writing:
            self._stream.stop()
        elif self._open is not None and self.waiting:
            self._waiting.remove(self._open.id)
            self.changed.emit()

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

    def delete(self, chat_id: int) -> None:
        """Remove a chat for good; an answer it is getting is stopped."""
        if self._answer is not None and self._answer.chat_id == chat_id:
            self._stream.stop()
        self._waiting = [waiting for waiting in self._waiting if waiting != chat_id]
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
        before, self._state = self._state, state
        if state.request != before.request:
            self._stream.still_alive()
        self._pump()
        self.changed.emit()

    def _pump(self) -> None:
        """Ask for the next answer, if one is waiting and the engine is free."""
        ready = self._state.stage is EngineStage.READY
        api_base = self._state.api_base
        while self._waiting and self._answer is None and ready and api_base is not None:
            self._ask(self._waiting.pop(0), api_base)
        self.changed.emit()

    def _ask(self, chat_id: int, api_base: str) -> None:
        try:
            chat = self._open if self._open is not None and self._open.id == chat_id else self._store.load(chat_id)
            if chat is None:
                return
            message = self._store.begin_answer(chat_id)
        except ChatStoreError as error:
            self._note(chat_id, error.problem)
            return
        self._answer = _Answer(chat_id, message)
        if chat_id == self.chat_id:
            self._append(message)
        self._save.start()
        self._tick.start()
        self._stream.send(api_base, openai_messages(chat.sent_messages), model=self._model)

    def _take(self, text: str) -> None:
        if self._answer is None:
            return
        self._answer.text += text
        if self.writing:
            self.delta.emit(text)

    def _finished(self, result: ChatResult) -> None:
        stats = result.stats or AnswerStats(
            answer_tokens=result.text_events,
            ttft_s=result.first_text_s,
            decode_tok_s=self._stream.text_events_per_s,
            measured_by="window",
        )
        end = _ENDS.get(result.finish_reason, AnswerEnd.NORMAL)
        if result.finish_reason == "length":
            context_tokens, total = self._context_tokens, stats.total_tokens
            is_full = context_tokens is not None and total is not None and total >= context_tokens - 1
            end = AnswerEnd.CACHE_FULL if is_full else AnswerEnd.LENGTH
        self._close_answer(end, stats)

    def _failed(self, problem: Problem) -> None:
        if self._answer is None:
            return
        on_purpose = self._state.stage in (EngineStage.STOPPING, EngineStage.STOPPED)
        if not on_purpose:
            self._problems[self._answer.chat_id] = problem
        tokens = self._stream.text_events
        stats = AnswerStats(answer_tokens=tokens, measured_by="window") if tokens else None
        self._close_answer(AnswerEnd.INTERRUPTED if on_purpose else AnswerEnd.ERROR, stats)

    def _close_answer(self, end: AnswerEnd, known: AnswerStats | None) -> None:
        answer = self._answer
        if answer is None:
            return
        stats = None if known is None else known.model_copy(update={"model": self._model})
        self._save.stop()
        self._tick.stop()
        keep = bool(answer.text) or end is AnswerEnd.NORMAL
        message = replace(answer.message, text=answer.text, end=end, stats=stats)
        is_open = self.writing
        self._answer = None
        try:
            if keep:
                self._store.end_answer(message.id, message.text, end, stats)
            else:
                self._store.remove_message(message.id)
        except ChatStoreError as error:
            self._note(answer.chat_id, error.problem)
        if is_open and self._open is not None:
            if keep:
                self._open = replace(self._open, messages=(*self._open.messages[:-1], message))
                self.ended.emit(message)
            else:
                self._remove(message.id)
        self._pump()

    # keeping

    def save_now(self) -> None:
        """Put the answer so far on disk: the window is closing."""
        self._save_answer()

    def _save_answer(self) -> None:
        if self._answer is None or not self._answer.text:
            return
        try:
            self._store.save_answer(self._answer.message.id, self._answer.text)
        except ChatStoreError as error:
            self._save.stop()  # said once; the end of the answer tries again
            self._note(self._answer.chat_id, error.problem)

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


def _repeating(parent: QObject, interval_ms: int, act: object) -> QTimer:
    timer = QTimer(parent)
    timer.setInterval(interval_ms)
    timer.timeout.connect(act)
    return timer
