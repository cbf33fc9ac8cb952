"""The JSON of an OpenAI chat stream as values, read leniently: a field that is missing or odd is None."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.chat.conversation import AnswerStats
from engine.contract.errors import Problem

DONE: Final = "[DONE]"

_FIXES: Final = {
    "context_length_exceeded": "Begin a new chat, or start the engine with a longer context.",
    "no_chat_template": "Choose a model that was made for chats.",
    "chat_template": "Begin a new chat, or choose another model.",
    "loading": "Wait until the engine is ready, then send the message again.",
}
_ANY_FIX: Final = "Send the message again; if it fails again, look into the log of the engine."


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a stream."""

    text: str = ""
    finish_reason: str | None = None
    stats: AnswerStats | None = None
    problem: Problem | None = None


def read_chunk(payload: str) -> Chunk:
    """One event's data.

    Raises:
        ValueError: not a JSON object.
    """
    body = json.loads(payload)
    if not isinstance(body, dict):
        raise ValueError(f"an event is not a JSON object: {payload[:80]!r}")
    if "error" in body:
        return Chunk(problem=problem_of(body, status=None))
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else None
    reason = choice.get("finish_reason")
    return Chunk(
        text=text if isinstance(text, str) else "",
        finish_reason=reason if isinstance(reason, str) else None,
        stats=_stats(body),
    )


def problem_of(body: object, status: int | None) -> Problem:
    """An OpenAI error body as a problem: `kind` is its code, or its type where there is no code.

    Splitpin's engine adds `sentence`, `fix` and `numbers`; where they are missing the message is the sentence.
    """
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        error = {}
    kind = next((error[key] for key in ("code", "type") if isinstance(error.get(key), str)), "http")
    message = error.get("sentence") or error.get("message")
    if not isinstance(message, str) or not message.strip():
        message = f"The engine answered with HTTP status {status} and no reason."
    fix = error.get("fix")
    if not isinstance(fix, str):
        # The message of Splitpin's engine ends with its fix; a second one would contradict it.
        fix = "" if kind == "context_length_exceeded" else _FIXES.get(kind, _ANY_FIX)
    numbers = error.get("numbers")
    known = {
        str(name): value
        for name, value in (numbers.items() if isinstance(numbers, dict) else ())
        if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool))
    }
    return Problem(kind=kind, sentence=message.strip(), fix=fix, numbers=known)


def _stats(body: Mapping[str, Any]) -> AnswerStats | None:
    usage, timings = body.get("usage"), body.get("timings")
    if not isinstance(usage, dict) and not isinstance(timings, dict):
        return None
    usage = usage if isinstance(usage, dict) else {}
    timings = timings if isinstance(timings, dict) else {}
    details = usage.get("prompt_tokens_details")
    return AnswerStats(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        answer_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        ttft_s=_rate(timings.get("ttft_s")),
        prefill_tok_s=_rate(timings.get("prefill_tok_s")),
        decode_tok_s=_rate(timings.get("decode_tok_s")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _rate(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
