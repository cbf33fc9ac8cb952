"""What a test must not leave running, without Qt: threads."""

import threading
import time
from abc import ABC, abstractmethod

from typing_extensions import override

_GRACE_S = 3.0
# Threads of libraries that live as long as the process, by the start of their names.
_LONG_LIVED = ("tqdm", "asyncio_", "pytest_timeout", "Thread-auto_conversion")


class LeakCheck(ABC):
    """Looks before and after one test."""

    @abstractmethod
    def begin(self) -> None:
        """Remember what is there."""

    @abstractmethod
    def end(self) -> list[str]:
        """A line for each thing that is there now and was not before."""


class ThreadLeakCheck(LeakCheck):
    """Threads started by the test and still alive after a short grace."""

    def __init__(self) -> None:
        self._before: set[threading.Thread] = set()

    @override
    def begin(self) -> None:
        self._before = set(threading.enumerate())

    @override
    def end(self) -> list[str]:
        deadline = time.monotonic() + _GRACE_S
        left_over = []
        for thread in self._started():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                left_over.append(f"thread {thread.name!r}{' (daemon)' if thread.daemon else ''}: end and join it")
        return left_over

    def _started(self) -> list[threading.Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread not in self._before
            and not thread.name.startswith(_LONG_LIVED)
            and not isinstance(thread, threading._DummyThread)  # a foreign thread that once called into Python
        ]
