"""The waiting line: first come first served; whoever hangs up leaves it at once."""

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from engine.contract.errors import SplitpinError
from engine.generate.request import GenerationRequest, Outcome


class Listener(Protocol):
    """Hears what becomes of a request: text in pieces, then exactly one end, unless it was cancelled while waiting.

    Called on the generation thread; must not block.
    """

    def text(self, piece: str) -> None: ...

    def done(self, outcome: Outcome) -> None: ...

    def failed(self, problem: SplitpinError) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A request in line or being answered. `accepted_s` is when it came in, by `time.monotonic`."""

    request: GenerationRequest
    accepted_s: float
    listener: Listener
    cancelled: threading.Event = field(default_factory=threading.Event)


class Line:
    """Jobs that wait. Any thread may put and drop; one thread takes."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            return len(self._jobs)

    def put(self, job: Job) -> bool:
        """Join the line; False if it is closed."""
        with self._changed:
            if not self._closed:
                self._jobs.append(job)
                self._changed.notify()
            return not self._closed

    def drop(self, job: Job) -> None:
        """Leave the line, if still in it."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def take(self) -> Job | None:
        """Wait for the next job; None once the line is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            return self._jobs.popleft() if self._jobs else None

    def close(self) -> None:
        """Nobody can join any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
