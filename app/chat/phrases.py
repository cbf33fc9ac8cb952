"""The short lines under and above messages."""

from typing import Final

from app.chat.context_use import ContextUse
from app.chat.conversation import AnswerEnd, AnswerStats

DOT: Final = " · "

END_WORDS: Final = {
    AnswerEnd.LENGTH: "Length limit",
    AnswerEnd.CACHE_FULL: "Cache full",
    AnswerEnd.STOPPED_BY_USER: "Stopped by you",
    AnswerEnd.INTERRUPTED: "Interrupted",
    AnswerEnd.ERROR: "Stopped by an error",
}


def count(number: int, noun: str) -> str:
    """ "1 token", "1,204 tokens"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def stats_line(stats: AnswerStats | None, end: AnswerEnd | None) -> str:
    """Below an answer: "486 tokens · 9.4 tok/s · first token 2.1 s · prompt 1,204 (1,020 cached)".

    An end that is not the normal one comes first: a small window cuts the line off at its end.
    """
    parts: list[str] = [END_WORDS[end]] if end in END_WORDS else []
    if stats is not None:
        if stats.answer_tokens == 0 and end is AnswerEnd.NORMAL:
            parts.append("Empty answer")  # or the row would be numbers below nothing
        elif stats.answer_tokens is not None:
            parts.append(count(stats.answer_tokens, "token"))
        if stats.decode_tok_s is not None:
            parts.append(f"{stats.decode_tok_s:,.1f} tok/s")
        if stats.ttft_s is not None:
            parts.append(f"first token {stats.ttft_s:,.1f} s")
        if stats.prompt_tokens is not None:
            cached = f" ({stats.cached_tokens:,} cached)" if stats.cached_tokens else ""
            parts.append(f"prompt {stats.prompt_tokens:,}{cached}")
    return DOT.join(parts)


def writing_line(tokens: int, tok_s: float | None) -> str:
    """While an answer grows: "Writing · 171 tokens · 9.4 tok/s"."""
    parts = ["Writing", count(tokens, "token")]
    if tok_s is not None:
        parts.append(f"{tok_s:,.1f} tok/s")
    return DOT.join(parts)


def prefill_line(done_tokens: int, total_tokens: int) -> str:
    """Before the first token: "Reading prompt 6,144 of 28,900"."""
    return f"Reading prompt {done_tokens:,} of {total_tokens:,}"


def meter_line(use: ContextUse, context_tokens: int | None) -> str:
    """In the composer: "Context about 1,690 of 33,792 tokens"; without an engine only what the chat takes."""
    about = "about " if use.about else ""
    if context_tokens is None:
        if not use.tokens:
            return ""
        return f"Context {about}{count(use.tokens, 'token')}"
    return f"Context {about}{use.tokens:,} of {count(context_tokens, 'token')}"
