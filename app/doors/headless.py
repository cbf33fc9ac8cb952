"""An engine without a window: started, waited for, asked and stopped from the main thread."""

import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import httpx

from app.chat.chunks import DONE, Chunk, problem_of, read_chunk
from app.chat.sse import SseParser
from app.core.session import EngineStage, Happening, ProcessEnded, SessionState, StartRequested, StopRequested, step
from app.doors.interrupts import held_back
from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from engine.contract.errors import EngineStoppedError, ReportedError, SplitpinError
from engine.contract.events import Event, Hello
from engine.contract.plan import MemoryPlan

_TICK_S = 0.2  # a wait without a limit cannot be interrupted by Ctrl-C on Windows
_END_S = 60.0
_SILENCE_S = 120.0  # an engine that computes sends a sign of life every few seconds
_VERDICT_S = 5.0  # between a broken connection and the news that the process has ended


class NoAnswerError(SplitpinError):
    """The engine runs, but it does not answer, or answers with something else."""

    kind = "no_answer"

    def __init__(self, cause: Exception) -> None:
        silent = isinstance(cause, httpx.TimeoutException)
        what = f"has not answered for {_SILENCE_S:.0f} s" if silent else f"answered with something else: {cause}"
        super().__init__(f"The engine runs, but {what}.", "Try again; the engine's log has the details.")


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
        try:
            with held_back():
                self._child = EngineChild.start(
                    self._plan,
                    run_ledger=self._ledger,
                    on_event=self._hear,
                    on_log=lambda line: None,
                    on_end=lambda problem: self._apply(ProcessEnded(problem)),
                    engine_argv=self._engine_argv,
                )
        except KeyboardInterrupt:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is None:
            return
        try:
            self._apply(StopRequested())
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
            NoAnswerError: it lives, but the connection broke or nothing came for a long time.
        """
        base = self.state.api_base
        try:
            with (
                httpx.Client(trust_env=False, timeout=httpx.Timeout(10, read=_SILENCE_S)) as client,
                client.stream("POST", f"{base}/chat/completions", json=body) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    response.read()
                    raise ReportedError(problem_of(_json_of(response), response.status_code))
                yield from _chunks(response.iter_bytes())
        except (httpx.HTTPError, ValueError) as cause:
            if not isinstance(cause, httpx.TimeoutException) and self._ends_within(_VERDICT_S):
                raise self.end_of(self.state) from cause
            raise NoAnswerError(cause) from cause

    def _ends_within(self, limit_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._state.running, limit_s)

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
