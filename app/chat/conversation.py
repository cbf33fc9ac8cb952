"""What a chat is: messages in order, how an answer ended, and what is sent to the engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from engine.contract.record import Record

TITLE_WORDS: Final = 8
TITLE_CHARACTERS: Final = 80  # a "word" may be a whole pasted line
UNTITLED: Final = "New chat"


class Role(StrEnum):
    """Who wrote a message; the values are those of the OpenAI protocol."""

    USER = "user"
    ASSISTANT = "assistant"


class AnswerEnd(StrEnum):
    """How an answer came to its end. A message of the user has none."""

    WRITING = "writing"  # not ended: a row left like this by a crash is read back as INTERRUPTED
    NORMAL = "normal"
    LENGTH = "length"  # the limit for one answer
    CACHE_FULL = "cache_full"  # prompt and answer together fill the KV cache
    STOPPED_BY_USER = "stopped_by_user"
    INTERRUPTED = "interrupted"  # launcher or engine ended while it was written
    ERROR = "error"


class AnswerStats(Record):
    """Numbers of one answer, as far as they are known."""

    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    cached_tokens: int | None = None
    ttft_s: float | None = None
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None
    measured_by: Literal["engine", "window"] = "engine"  # "window": the engine said nothing
    model: str | None = None  # who answered

    @property
    def total_tokens(self) -> int | None:
        """Tokens the KV cache held at the end of this answer."""
        if self.prompt_tokens is None or self.answer_tokens is None:
            return None
        return self.prompt_tokens + self.answer_tokens


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `created_s` is seconds since 1970 (UTC)."""

    id: int
    role: Role
    text: str
    created_s: float
    end: AnswerEnd | None = None
    stats: AnswerStats | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat, whole. Messages before `sent_from_id` stay readable and are left out of what the engine gets."""

    id: int
    title: str
    messages: tuple[Message, ...] = ()
    sent_from_id: int | None = None

    @property
    def sent_messages(self) -> tuple[Message, ...]:
        """The messages that the engine gets."""
        first = self.sent_from_id
        return self.messages if first is None else tuple(m for m in self.messages if m.id >= first)

    @property
    def unanswered(self) -> bool:
        """The last word is the user's."""
        return bool(self.messages) and self.messages[-1].role is Role.USER


def title_of(text: str) -> str:
    """The first eight words of a message, cut at 80 characters."""
    words = text.split()
    title = " ".join(words[:TITLE_WORDS])
    if len(title) > TITLE_CHARACTERS:
        title = title[: TITLE_CHARACTERS - 1].rstrip() + "…"
    return title or UNTITLED


def openai_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """The `messages` of a request. Empty answers are dropped, and neighbours of one role become one message.

    Chat templates of several families refuse two messages of the same role in a row; that happens here when an answer
    failed and the user wrote again.
    """
    turns: list[dict[str, str]] = []
    for message in messages:
        if not message.text.strip():
            continue
        if turns and turns[-1]["role"] == message.role.value:
            turns[-1]["content"] += "\n\n" + message.text
        else:
            turns.append({"role": message.role.value, "content": message.text})
    return turns
