"""The waiting line: first come first served, new plans too; whoever hangs up leaves it at once."""

import threading
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from engine.contract.errors import SplitpinError
from engine.generate.request import GenerationRequest, Outcome
from engine.serve.plan_jobs import PlanJob


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


class Idle(Enum):
    """Nothing came in time."""

    IDLE = "idle"


class Refusal(Enum):
    """Why a new plan may not join."""

    CLOSED = "closed"
    CHANGING = "another new plan waits or is being made"
    BUSY = "somebody is being answered or waits"


class Line:
    """Jobs that wait. Any thread may put and drop; one takes, and is busy with what it took until `finished`."""

    def __init__(self) -> None:
        self._jobs: deque[Job | PlanJob] = deque()
        self._closed = False
        self._taken: Job | PlanJob | None = None
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

    @property
    def changing(self) -> bool:
        """A new plan waits or is being made."""
        with self._changed:
            return any(isinstance(job, PlanJob) for job in (self._taken, *self._jobs))

    def put_plan(self, plan_job: PlanJob, *, waits: bool) -> Refusal | None:
        """Join the line with a new plan, one at a time; None: it has joined, and who comes later waits behind it.

        `waits` False: only if it need not wait.
        """
        with self._changed:
            if self._closed:
                return Refusal.CLOSED
            if self.changing:
                return Refusal.CHANGING
            if not waits and (self._taken or self._jobs):
                return Refusal.BUSY
            self._jobs.append(plan_job)
            self._changed.notify()
            return None

    def drop(self, job: Job | PlanJob) -> None:
        """Leave the line, if still in it."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def take(self, patience_s: float | None = None) -> Job | PlanJob | Idle | None:
        """Wait for the next job; None once the line is closed and empty, `Idle` if none came in time."""
        with self._changed:
            self._taken = None
            if not self._changed.wait_for(lambda: self._jobs or self._closed, patience_s):
                return Idle.IDLE
            if not self._jobs:
                return None
            self._taken = self._jobs.popleft()
            return self._taken

    def finished(self) -> None:
        """What was taken is done; said before its client is told, who may at once ask for another plan."""
        with self._changed:
            self._taken = None

    def close(self) -> None:
        """Nobody can join any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
