"""An engine without a window: started, waited for, asked and stopped from the main thread."""

import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import httpx

from app.chat.chunks import DONE, Chunk, problem_of, read_chunk
from app.chat.sse import SseParser
from app.core.session import EngineStage, Happening, ProcessEnded, SessionState, StartRequested, StopRequested, step
from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from engine.contract.errors import EngineStoppedError, ReportedError
from engine.contract.events import Event, Hello
from engine.contract.plan import MemoryPlan

_TICK_S = 0.2  # a wait without a limit cannot be interrupted by Ctrl-C on Windows
_END_S = 60.0


class HeadlessEngine:
    """One engine as a context: leaving it stops the engine and waits until nothing of it is left."""

    def __init__(self, plan: MemoryPlan, run_ledger: RunLedger, engine_argv: Sequence[str] | None = None) -> None:
        self._plan = plan
        self._ledger = run_ledger
        self._engine_argv = engine_argv
        self._changed = threading.Condition()
        self._state = SessionState()
        self._child: EngineChild | None = None
        self._hello: Hello | None = None

    def __enter__(self) -> "HeadlessEngine":
        self._apply(StartRequested(self._plan))
        self._child = EngineChild.start(
            self._plan,
            run_ledger=self._ledger,
            on_event=self._hear,
            on_log=lambda line: None,
            on_end=lambda problem: self._apply(ProcessEnded(problem)),
            engine_argv=self._engine_argv,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is None:
            return
        self._apply(StopRequested())
        try:
            self._child.stop()
            while not self._child.wait(_TICK_S):
                pass
        except KeyboardInterrupt:  # a second Ctrl-C: no more patience
            self._child.kill()
            self._child.wait(_END_S)

    @property
    def state(self) -> SessionState:
        with self._changed:
            return self._state

    @property
    def hello(self) -> Hello | None:
        """The engine's greeting; stays when the engine has ended."""
        return self._hello

    def wait_for(
        self, reached: Callable[[SessionState], bool], on_change: Callable[[SessionState], None]
    ) -> SessionState:
        """Wait until a state is reached; `on_change` sees every state on the way.

        Raises:
            ReportedError: the engine ended before; carries what it said, or its exit code in words.
        """
        seen: SessionState | None = None
        while True:
            state = self._newer_than(seen)
            if state is not seen:
                seen = state
                on_change(state)
            if reached(state):
                return state
            if not state.running:
                raise self.end_of(state)

    def _newer_than(self, seen: SessionState | None) -> SessionState:
        """The state; waits a moment if it is the one that was seen."""
        with self._changed:
            if self._state is seen:
                self._changed.wait(_TICK_S)
            return self._state

    def ask(self, body: dict[str, Any]) -> Iterator[Chunk]:
        """Stream the answer to one chat request.

        Raises:
            ReportedError: the engine refused the request, or ended while it answered.
        """
        base = self.state.api_base
        try:
            with (
                httpx.Client(trust_env=False, timeout=httpx.Timeout(10, read=None)) as client,
                client.stream("POST", f"{base}/chat/completions", json=body) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    response.read()
                    raise ReportedError(problem_of(_json_of(response), response.status_code))
                yield from _chunks(response.iter_bytes())
        except httpx.HTTPError as cause:
            state = self.wait_for(lambda state: not state.running, lambda state: None)
            raise self.end_of(state) from cause

    def end_of(self, state: SessionState) -> ReportedError:
        """Why an engine that should run does not."""
        stopped = EngineStoppedError("The engine stopped before it had answered.", "Start it again.")
        return ReportedError(state.problem or stopped.problem)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Hello):
            self._hello = event
        self._apply(event)

    def _apply(self, happening: Happening) -> None:
        with self._changed:
            self._state = step(self._state, happening)
            self._changed.notify_all()


def _chunks(pieces: Iterator[bytes]) -> Iterator[Chunk]:
    parser = SseParser()
    for piece in pieces:
        for payload in parser.feed(piece):
            if payload == DONE:
                return
            chunk = read_chunk(payload)
            if chunk.problem is not None:
                raise ReportedError(chunk.problem)
            yield chunk
    raise httpx.RemoteProtocolError("the stream ended without its last event")


def _json_of(response: httpx.Response) -> object:
    try:
        return response.json()
    except ValueError:
        return None


def is_ready(state: SessionState) -> bool:
    """The engine answers requests."""
    return state.stage is EngineStage.READY
