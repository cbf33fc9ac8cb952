"""Which memory ran out while a request was computed: GPU, pinned, commit or RAM, with the numbers there are.

Errors of the engine's own allocations say it themselves. Those of torch and Python have to be taken apart: torch names
GPU memory by a type of its own, pinned memory only in its words, and host memory by a plain RuntimeError.
"""

import re
from collections.abc import Callable

from engine.contract.errors import in_words
from engine.contract.units import gib, parse_bytes
from engine.serve.answer_errors import (
    AnswerCommitError,
    AnswerMemoryError,
    AnswerPinError,
    AnswerRamError,
    AnswerVramError,
)
from engine.system.select import host_memory_left

# torch on Linux, on Windows, on both; and Python, whose thread has no memory for its stack
_HOST_WORDS = ("can't allocate memory", "not enough memory", "defaultcpuallocator", "can't start new thread")
_GPU_WORDS = ("cuda out of memory", "cuda error: out of memory", "cublas_status_alloc_failed")
_PIN_WORDS = ("hostalloc", "hostregister", "pinned", "pin_memory", "cachinghostallocator")
_GPU_TYPE = "OutOfMemoryError"  # torch's, which may not be imported
_TRIED = re.compile(r"tried to allocate ([\d.]+) ?([KMGT]i?B|bytes)?", re.IGNORECASE)
_FREE = re.compile(r"([\d.]+) ?([KMGT]iB) is free", re.IGNORECASE)

Left = Callable[[], tuple[int, int | None]]


def memory_problem(error: BaseException, doing: str, left: Left = host_memory_left) -> AnswerMemoryError | None:
    """The typed error for an error of torch or Python; None: it is about something else.

    Args:
        doing: "while answering", for the sentence.
        left: reads RAM that is available and commit that is left (None: not limited), in bytes.
    """
    text = str(error).lower()
    if _is_gpu(error, text):
        asked, free = _amount(_TRIED, text), _amount(_FREE, text)
        if any(word in text for word in _PIN_WORDS):
            return _made(AnswerPinError, error, doing, asked, None)
        return _made(AnswerVramError, error, doing, asked, free)
    if not isinstance(error, MemoryError) and not (
        isinstance(error, RuntimeError) and any(word in text for word in _HOST_WORDS)
    ):
        return None
    asked = _amount(_TRIED, text)
    ram_left, commit_left = left()
    # What RAM could hold was not refused for want of RAM, nor was what is more than the system may still promise.
    if commit_left is not None and (asked is None or asked > commit_left or asked <= ram_left):
        return _made(AnswerCommitError, error, doing, asked, commit_left)
    return _made(AnswerRamError, error, doing, asked, ram_left)


def _is_gpu(error: BaseException, text: str) -> bool:
    if not isinstance(error, RuntimeError):
        return False
    return type(error).__name__ == _GPU_TYPE or any(word in text for word in _GPU_WORDS)


def _amount(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    unit = found[2] or ""
    return parse_bytes(f"{found[1]} {'' if unit == 'bytes' else unit}")


def _made(
    kind: type[AnswerMemoryError], error: BaseException, doing: str, asked: int | None, free: int | None
) -> AnswerMemoryError:
    numbers = [f"{gib(asked)} more were asked for"] if asked is not None else []
    numbers += [f"{gib(free)} are left"] if free is not None else []
    words = ", ".join(numbers) or (in_words(error) if isinstance(error, Exception) else type(error).__name__)
    short = asked - free if asked is not None and free is not None and asked > free else None
    return kind(
        f"{kind.pool_words} ran out {doing}: {words}.",
        kind.fix_words,
        short_bytes=short,
        asked_bytes=asked,
        available_bytes=free,
    )
