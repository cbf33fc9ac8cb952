"""The engine's process in Qt's world: its threads' messages reach the store on the UI thread."""

from collections.abc import Sequence

from PySide6.QtCore import QObject, Qt, Signal

from app.core.session import Happening, ProcessEnded, StartRequested, StopRequested
from app.link.store import SessionStore
from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from app.supervision.stop_ladder import StopLadder
from engine.contract.errors import Problem, SplitpinError
from engine.contract.events import Event, Failed
from engine.contract.plan import MemoryPlan
from engine.system.protocols import ChildLauncher

QUIT_S = 5.0  # a window that closes does not wait longer for a polite end


class EngineProcess(QObject):
    """Starts and stops one engine at a time. Lives on the UI thread and never blocks it, except in `close`."""

    logged = Signal(str)  # one line of the engine's log
    ended = Signal(object)  # Problem or None; the store has been told before
    memory_returned = Signal(object)  # MemoryReturn, after `ended`: what came back, or what did not

    _happened = Signal(int, object)  # run number, Happening; from threads of the child
    _line = Signal(int, str)

    def __init__(
        self,
        store: SessionStore,
        run_ledger: RunLedger,
        *,
        engine_argv: Sequence[str] | None = None,
        launcher: ChildLauncher | None = None,
        ladder: StopLadder | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store = store
        self._ledger = run_ledger
        self._engine_argv = engine_argv
        self._launcher = launcher
        self._ladder = ladder
        self._child: EngineChild | None = None
        self._number = 0  # messages of an earlier child may still be queued
        self._happened.connect(self._apply, Qt.ConnectionType.QueuedConnection)
        self._line.connect(self._log_line, Qt.ConnectionType.QueuedConnection)

    @property
    def child(self) -> EngineChild | None:
        """The engine that runs or ran last, with its log."""
        return self._child

    def start(self, plan: MemoryPlan, *, port: int = 0, called: str = "") -> None:
        """Start an engine; does nothing while one runs. Errors of the start arrive in the store as problems.

        `called`: what people call the model.
        """
        if self._store.state.running:
            return
        self._store.apply(StartRequested(plan, called))
        self._number += 1
        number = self._number
        self._child = None  # a refused start must not speak of the engine before it
        try:
            self._child = EngineChild.start(
                plan,
                run_ledger=self._ledger,
                on_event=lambda event: self._tell(number, event),
                on_log=lambda line: self._line.emit(number, line),
                on_end=lambda problem: self._tell(number, ProcessEnded(problem)),
                engine_argv=self._engine_argv,
                launcher=self._launcher,
                ladder=self._ladder,
                port=port,
            )
        except SplitpinError as error:
            self._tell(number, ProcessEnded(error.problem))

    def stop(self) -> None:
        """Begin to stop the engine; the store tells when it is gone."""
        if self._child is not None and self._store.state.running:
            self._store.apply(StopRequested())
            self._child.stop()

    def kill(self) -> None:
        """End the engine without waiting for its answer: for one that does not respond."""
        if self._child is not None and self._store.state.running:
            self._store.apply(StopRequested())
            self._child.kill()

    def close(self, timeout_s: float = QUIT_S) -> bool:
        """For the end of the program: stop politely for `timeout_s`, then end the tree. True if nothing is left."""
        if self._child is None:
            return True
        self._child.stop(wait_for_memory=False)
        if self._child.wait(timeout_s):
            return True
        self._child.kill()
        return self._child.wait(timeout_s)

    def _tell(self, number: int, happening: Happening) -> None:
        self._happened.emit(number, happening)

    def _apply(self, number: int, happening: Event | ProcessEnded) -> None:
        if number != self._number:
            return
        if isinstance(happening, Failed):
            happening = happening.model_copy(update={"problem": self._with_log(happening.problem)})
        self._store.apply(happening)
        if isinstance(happening, ProcessEnded):
            self.ended.emit(_as_reported(self._store, happening.problem))
            if self._child is not None and (back := self._child.memory_return) is not None:
                self.memory_returned.emit(back)

    def _with_log(self, problem: Problem) -> Problem:
        """The engine does not know where its log goes."""
        if self._child is None:
            return problem
        return problem.model_copy(update={"numbers": {**problem.numbers, "log_file": str(self._child.log_file)}})

    def _log_line(self, number: int, line: str) -> None:
        if number == self._number:
            self.logged.emit(line)


def _as_reported(store: SessionStore, problem: Problem | None) -> Problem | None:
    """The problem the state shows: what the engine said of its own end counts more than its exit code."""
    return store.state.problem or problem
