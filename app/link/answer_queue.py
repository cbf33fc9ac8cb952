"""Chats that wait for an answer, and the one that is getting it: one at a time, saved once a second while it grows."""

from dataclasses import dataclass, replace
from typing import Final

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.conversation import AnswerEnd, AnswerStats, Message, openai_messages
from app.chat.errors import ChatStoreError
from app.chat.store import ChatStore
from app.core.session import EngineStage, SessionState
from app.link.stream import STOPPED, ChatResult, ChatStream
from engine.contract.errors import Problem

_SAVE_MS: Final = 1000
_STATUS_MS: Final = 200
_ENDS: Final = {"stop": AnswerEnd.NORMAL, "cancelled": AnswerEnd.INTERRUPTED, STOPPED: AnswerEnd.STOPPED_BY_USER}


@dataclass(slots=True)
class _Answer:
    """The answer being written."""

    chat_id: int
    message: Message
    text: str = ""


class AnswerQueue(QObject):
    """Asks the engine as soon as it is ready and free.

    Signals, each with the id of its chat first:
        begun: an answer was asked for (`Message`, without text).
        delta: more of its text (str).
        ended: it is as it stays (`Message`).
        removed: it had no word and is gone (id of the message).
        failed: something went wrong (`Problem`).
    And `changed`: what waits or how far the answer is may be different.
    """

    begun = Signal(int, object)
    delta = Signal(int, str)
    ended = Signal(int, object)
    removed = Signal(int, int)
    failed = Signal(int, object)
    changed = Signal()

    def __init__(self, store: ChatStore, stream: ChatStream, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._stream = stream
        self._state = SessionState()
        self._waiting: list[int] = []
        self._answer: _Answer | None = None
        self._save = _repeating(self, _SAVE_MS)
        self._save.timeout.connect(self.save_now)
        self._tick = _repeating(self, _STATUS_MS)
        self._tick.timeout.connect(self.changed)
        stream.delta.connect(self._take)
        stream.finished.connect(self._finished)
        stream.failed.connect(self._failed)

    @property
    def answered_id(self) -> int | None:
        """The chat that is getting an answer."""
        return None if self._answer is None else self._answer.chat_id

    @property
    def text(self) -> str:
        """Of the answer so far."""
        return "" if self._answer is None else self._answer.text

    def waits(self, chat_id: int | None) -> bool:
        """A chat is not answered yet."""
        return chat_id in self._waiting

    def add(self, chat_id: int) -> None:
        """Have the last message of a chat answered, as soon as possible."""
        self._waiting.append(chat_id)
        self._pump()

    def drop(self, chat_id: int) -> None:
        """Stop the answer of a chat, or its waiting for one."""
        if chat_id == self.answered_id:
            self._stream.stop()
        elif chat_id in self._waiting:
            self._waiting.remove(chat_id)
            self.changed.emit()

    def show_session(self, state: SessionState) -> None:
        """The engine's state: what waits is sent when it is ready, and its split is not being changed."""
        before, self._state = self._state, state
        if state.request != before.request:
            self._stream.still_alive()
        self._pump()

    def save_now(self) -> None:
        """Put the answer so far on disk."""
        if self._answer is None or not self._answer.text:
            return
        try:
            self._store.save_answer(self._answer.message.id, self._answer.text)
        except ChatStoreError as error:
            self._save.stop()  # said once; the end of the answer tries again
            self.failed.emit(self._answer.chat_id, error.problem)

    @property
    def _model(self) -> str | None:
        return None if self._state.plan is None else self._state.plan.model.name

    def _pump(self) -> None:
        ready = self._state.stage is EngineStage.READY and self._state.change is None
        api_base = self._state.api_base
        while self._waiting and self._answer is None and ready and api_base is not None:
            self._ask(self._waiting.pop(0), api_base)
        self.changed.emit()

    def _ask(self, chat_id: int, api_base: str) -> None:
        try:
            chat = self._store.load(chat_id)
            if chat is None:
                return
            message = self._store.begin_answer(chat_id)
        except ChatStoreError as error:
            self.failed.emit(chat_id, error.problem)
            return
        self._answer = _Answer(chat_id, message)
        self.begun.emit(chat_id, message)
        self._save.start()
        self._tick.start()
        self._stream.send(api_base, openai_messages(chat.sent_messages), model=self._model)

    def _take(self, text: str) -> None:
        if self._answer is not None:
            self._answer.text += text
            self.delta.emit(self._answer.chat_id, text)

    def _finished(self, result: ChatResult) -> None:
        stats = result.stats or AnswerStats(
            answer_tokens=result.text_events,
            ttft_s=result.first_text_s,
            decode_tok_s=self._stream.text_events_per_s,
            measured_by="window",
        )
        end = _ENDS.get(result.finish_reason, AnswerEnd.NORMAL)
        if result.finish_reason == "length":
            context_tokens = None if self._state.plan is None else self._state.plan.context_tokens
            total = stats.total_tokens
            is_full = context_tokens is not None and total is not None and total >= context_tokens - 1
            end = AnswerEnd.CACHE_FULL if is_full else AnswerEnd.LENGTH
        self._close(end, stats)

    def _failed(self, problem: Problem) -> None:
        if self._answer is None:
            return
        on_purpose = self._state.stage in (EngineStage.STOPPING, EngineStage.STOPPED)
        if not on_purpose:
            self.failed.emit(self._answer.chat_id, problem)
        tokens = self._stream.text_events
        stats = AnswerStats(answer_tokens=tokens, measured_by="window") if tokens else None
        self._close(AnswerEnd.INTERRUPTED if on_purpose else AnswerEnd.ERROR, stats)

    def _close(self, end: AnswerEnd, known: AnswerStats | None) -> None:
        answer = self._answer
        if answer is None:
            return
        stats = None if known is None else known.model_copy(update={"model": self._state.model_name})
        self._save.stop()
        self._tick.stop()
        self._answer = None
        message = replace(answer.message, text=answer.text, end=end, stats=stats)
        keep = bool(answer.text) or end is AnswerEnd.NORMAL
        try:
            if keep:
                self._store.end_answer(message.id, message.text, end, stats)
            else:
                self._store.remove_message(message.id)
        except ChatStoreError as error:
            self.failed.emit(answer.chat_id, error.problem)
        if keep:
            self.ended.emit(answer.chat_id, message)
        else:
            self.removed.emit(answer.chat_id, message.id)
        self._pump()


def _repeating(parent: QObject, interval_ms: int) -> QTimer:
    timer = QTimer(parent)
    timer.setInterval(interval_ms)
    return timer
