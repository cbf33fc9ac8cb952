"""How much of the KV cache a conversation takes: exact from the last answer's usage, estimated for what came since."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.chat.conversation import Message, Role

CHARACTERS_PER_TOKEN: Final = 4  # a rule of thumb for English text; code and other scripts take more tokens
MESSAGE_TOKENS: Final = 4  # marks of role and end around one message in common chat templates
ANSWER_ROOM_TOKENS: Final = 256  # room that leaving out old messages makes for the next answer


@dataclass(frozen=True, slots=True)
class ContextUse:
    """Tokens of history and typed text. `about` is True when any part of it is estimated."""

    tokens: int
    about: bool


def estimated_tokens(text: str) -> int:
    """About how many tokens a message of this text takes; 0 for no text."""
    if not text.strip():
        return 0
    return -(-len(text) // CHARACTERS_PER_TOKEN) + MESSAGE_TOKENS


def context_use(messages: Sequence[Message], draft: str = "") -> ContextUse:
    """What the next request takes.

    Args:
        messages: those that would be sent.
        draft: typed and not yet sent.
    """
    known = 0
    since = list(messages)
    for index in range(len(messages) - 1, -1, -1):
        stats = messages[index].stats
        if stats is not None and stats.total_tokens is not None:
            known, since = stats.total_tokens, list(messages[index + 1 :])
            break
    guessed = sum(estimated_tokens(message.text) for message in since) + estimated_tokens(draft)
    return ContextUse(known + guessed, about=guessed > 0)


def oldest_to_leave_out(messages: Sequence[Message], *, prompt_tokens: int, context_tokens: int) -> int:
    """How many of the oldest messages must go so that the rest, and a short answer, fit; 0 if leaving out cannot help.

    What is left begins with a message of the user and keeps the last message. Each message is estimated, scaled so
    that all together take the `prompt_tokens` the engine counted.
    """
    guesses = [estimated_tokens(message.text) for message in messages]
    scale = prompt_tokens / max(sum(guesses), 1)
    excess = prompt_tokens + min(ANSWER_ROOM_TOKENS, context_tokens // 4) - context_tokens
    freed = 0.0
    for count, guess in enumerate(guesses[:-1], start=1):
        freed += guess * scale
        if freed >= excess and messages[count].role is Role.USER:
            return count
    return 0
