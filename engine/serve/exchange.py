"""One HTTP request waiting for the generation thread: what happens there crosses to the event loop here."""

import asyncio
import threading
from collections.abc import AsyncIterator
from enum import Enum

from starlette.requests import Request

from engine.contract.errors import SplitpinError
from engine.generate.request import Outcome
from engine.serve.line import Job
from engine.serve.session import Session


class Quiet(Enum):
    """Happenings without content."""

    GONE = "the client hung up"
    SILENCE = "nothing came for a while"


Happening = str | Outcome | SplitpinError | Quiet


class Exchange:
    """A session listener that an async handler can wait on. Made on the event loop it belongs to."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Happening] = asyncio.Queue()
        self._watch: asyncio.Task[None] | None = None
        self._job: Job | None = None
        self._gone = threading.Event()

    def text(self, piece: str) -> None:
        self._hand_over(piece)

    def done(self, outcome: Outcome) -> None:
        self._hand_over(outcome)

    def failed(self, problem: SplitpinError) -> None:
        self._hand_over(problem)

    def _hand_over(self, happening: Happening) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, happening)

    @property
    def is_gone(self) -> bool:
        """The client hung up. Any thread may ask."""
        return self._gone.is_set()

    def watch(self, request: Request, session: Session) -> None:
        """Notice as soon as the client hangs up, whether or not anything is being sent just then."""
        self._watch = asyncio.create_task(self._cancel_when_gone(request, session))

    def wait_for(self, session: Session, job: Job) -> None:
        """What the client waits for from now on; it is cancelled when the client hangs up."""
        self._job = job
        if self.is_gone:
            session.cancel(job)

    def unwatch(self) -> None:
        """The answer is out, or given up."""
        if self._watch is not None:
            self._watch.cancel()

    async def _cancel_when_gone(self, request: Request, session: Session) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
        if self._job is not None:
            session.cancel(self._job)
        self._arrived.put_nowait(Quiet.GONE)

    async def next(self, timeout_s: float | None = None) -> Happening:
        """The next happening; `Quiet.SILENCE` if there was none in time."""
        try:
            return await asyncio.wait_for(self._arrived.get(), timeout_s)
        except TimeoutError:
            return Quiet.SILENCE

    async def all_from(self, first: Happening, silence_s: float) -> AsyncIterator[Happening]:
        """`first` and everything after it up to the end of the answer."""
        happening = first
        yield happening
        while isinstance(happening, str) or happening is Quiet.SILENCE:
            happening = await self.next(silence_s)
            yield happening
