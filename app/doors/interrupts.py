"""Ctrl-C and polite requests to end: both unwind the stack, so that an engine is stopped before its launcher ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_REQUESTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # where the system has them; SIGBREAK is Windows' Ctrl-Break
_UNTOUCHED = (signal.SIG_DFL, signal.default_int_handler)  # another handler, or SIG_IGN of nohup, was meant so


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _signals() -> list[signal.Signals]:
    return [signal.Signals[name] for name in _REQUESTS if name in signal.Signals.__members__]


def _in_main_thread() -> bool:
    """The only one that may set handlers, and the one that hears."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interruptible() -> Iterator[None]:
    """Requests to end raise KeyboardInterrupt in the main thread while the block runs."""
    before = {number: signal.getsignal(number) for number in _signals()} if _in_main_thread() else {}
    taken = {number: handler for number, handler in before.items() if handler in _UNTOUCHED}
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """Requests to end wait until the block is done: for the moment in which something exists that nobody knows yet."""
    came: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in _signals()} if _in_main_thread() else {}
    ours = {number: handler for number, handler in before.items() if callable(handler)}
    for number in ours:
        signal.signal(number, lambda *call: came.append(call))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    if came:
        first, frame = came[0]
        ours[signal.Signals(first)](first, frame)
