"""One engine as a child process, from its start to the moment its whole process tree is gone."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.orphans.memory_return import MemoryReturn, wait_for_return
from app.paths import program_dir
from app.supervision.environment import engine_environment
from app.supervision.exit_words import explain_end
from app.supervision.identity import own_identity
from app.supervision.ledger import RunLedger, new_run_id
from app.supervision.log_tail import LogTail
from app.supervision.ports import check_port, explain_taken_port
from app.supervision.run_folder import write_plan
from app.supervision.stop_ladder import StopLadder
from engine.contract.errors import EngineStoppedError, Problem, WireError
from engine.contract.events import Event, Failed, Hello, Listening
from engine.contract.plan import MemoryPlan
from engine.contract.processes import ProcessIdentity, RunEntry
from engine.contract.wire import check_hello, decode_event
from engine.system.protocols import ChildLauncher, ChildProcess, LiveMemory, MemoryUse
from engine.system.select import child_launcher, gpu_bytes_by_pid, live_memory

log = logging.getLogger(__name__)

REFRESH_S = 2.0  # the ledger follows the engine's process tree this closely
DRAIN_S = 2.0  # for the last lines, once the tree is gone


@dataclass(frozen=True, slots=True)
class _Held:
    """Memory of the PC while the engine lived, and VRAM of the engine's own processes; None: nobody tells."""

    use: MemoryUse
    vram_bytes: int | None

    @classmethod
    def now(cls, memory: LiveMemory, child: ChildProcess) -> "_Held":
        by_pid = gpu_bytes_by_pid()
        own = [by_pid[member.pid] for member in child.tree() if member.pid in by_pid]
        return cls(memory.read(), sum(own) if own else None)


class EngineChild:
    """A running engine. Callbacks come from threads of this object, in order, `on_end` last and once.

    `on_end` gets None after a stop that was asked for, else what happened. By then every process of the tree is gone,
    and the memory has come back or was given up (`memory_return`).
    """

    def __init__(
        self,
        child: ChildProcess,
        entry: RunEntry,
        run_ledger: RunLedger,
        *,
        recorded: bool,
        on_event: Callable[[Event], None],
        on_log: Callable[[str], None],
        on_end: Callable[[Problem | None], None],
        ladder: StopLadder,
        open_memory: Callable[[], LiveMemory],
    ) -> None:
        self._child = child
        self._open_memory = open_memory
        self._memory_return: MemoryReturn | None = None
        self._hurry = threading.Event()  # somebody quits: no waiting for memory
        self._entry = entry
        self._ledger = run_ledger
        self._recorded = recorded
        self._recording = threading.Lock()
        self._on_event = on_event
        self._on_end = on_end
        self._ladder = ladder
        self._log_file = run_ledger.run_dir(entry.run_id) / "engine.log"
        self._tail = LogTail(self._log_file, on_log)
        self._stop_wanted = threading.Event()
        self._look = threading.Event()  # something happened that the watching thread must see at once
        self._ended = threading.Event()
        self._problem: Problem | None = None  # what the engine reported, or a breach of the protocol
        readers = (self._read_events, self._read_log)
        self._readers = [threading.Thread(target=read, name="engine output", daemon=True) for read in readers]
        self._watcher = threading.Thread(target=self._watch, name="engine watch", daemon=True)

    @classmethod
    def start(
        cls,
        plan: MemoryPlan,
        *,
        run_ledger: RunLedger,
        on_event: Callable[[Event], None],
        on_log: Callable[[str], None],
        on_end: Callable[[Problem | None], None],
        engine_argv: Sequence[str] | None = None,
        launcher: ChildLauncher | None = None,
        port: int = 0,
        ladder: StopLadder | None = None,
        open_memory: Callable[[], LiveMemory] = live_memory,
    ) -> "EngineChild":
        """Start an engine with a plan.

        Args:
            engine_argv: what to run instead of `python -m engine`; the same arguments are appended.
            port: 0 takes any free one.
            open_memory: the readings that tell when the engine's memory is back.

        Raises:
            PortTakenError: another program has the port; carries who, and a free one.
            RunFolderError: the plan cannot be written.
            LaunchRefusedError: the program is missing or the system refused.
        """
        check_port(port, run_ledger.read)
        run_id = new_run_id()
        run_ledger.forget_old_folders()
        plan_file = write_plan(plan, run_ledger.run_dir(run_id))
        me = own_identity()
        program = [sys.executable, "-m", "engine"] if engine_argv is None else list(engine_argv)
        parent = ["--parent-pid", str(me.pid), "--parent-create-time", repr(me.create_time)]
        child = (launcher or child_launcher()).start(
            [*program, "serve", str(plan_file), "--port", str(port), "--run-id", run_id, *parent],
            cwd=program_dir(),
            env=engine_environment(os.environ, run_id),
        )
        entry = RunEntry(
            run_id=run_id, engine=child.identity, supervisor=me, children=_workers(child), model=plan.model_dir
        )
        recorded = run_ledger.record(entry)
        log.info("engine run %s started, PID %d", run_id, child.pid)
        running = cls(
            child,
            entry,
            run_ledger,
            recorded=recorded,
            on_event=on_event,
            on_log=on_log,
            on_end=on_end,
            ladder=ladder or StopLadder(),
            open_memory=open_memory,
        )
        for thread in (*running._readers, running._watcher):
            thread.start()
        return running

    @property
    def run_id(self) -> str:
        return self._entry.run_id

    @property
    def identity(self) -> ProcessIdentity:
        """The process that was started; the engine itself may be a child of it (virtual environments on Windows)."""
        return self._entry.engine

    @property
    def log_file(self) -> Path:
        return self._log_file

    @property
    def log_lines(self) -> tuple[str, ...]:
        """The last lines of the engine's log."""
        return self._tail.lines

    @property
    def memory_return(self) -> MemoryReturn | None:
        """What came back after the end; None before it, and where nobody waited for it."""
        return self._memory_return

    def stop(self, *, wait_for_memory: bool = True) -> None:
        """Begin to stop the engine; `on_end` tells when it is gone. Returns at once; a second call does nothing.

        Args:
            wait_for_memory: False for a program that quits: then `on_end` comes as soon as the processes are gone.
        """
        if not wait_for_memory:
            self._hurry.set()
        self._stop_wanted.set()
        self._look.set()

    def kill(self) -> None:
        """End the whole tree now. `on_end` follows as after `stop`, without waiting for memory."""
        self.stop(wait_for_memory=False)
        self._child.kill_tree()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until `on_end` has been called; False if the time ran out. Not for callbacks of this object."""
        if not self._ended.wait(timeout_s):
            return False
        self._watcher.join(timeout_s)
        return not self._watcher.is_alive()

    def _read_events(self) -> None:
        """Every line of stdout is an event; the first is a `Hello`. Anything else ends the engine."""
        greeted = False
        for line in self._child.stdout:
            if self._problem is not None and self._problem.kind == WireError.kind:
                continue  # what does not speak the protocol is only drained
            try:
                event = decode_event(line)
                if not greeted:
                    self._greet(check_hello(event))
                    greeted = True
            except WireError as breach:
                log.error("engine run %s: %s", self.run_id, breach.sentence)
                self._problem = breach.problem
                self._look.set()
                continue
            if isinstance(event, Failed):
                self._problem = event.problem
                self._look.set()
            if isinstance(event, Listening):
                self._update_entry(port=event.port)
            self._on_event(event)
        self._look.set()

    def _read_log(self) -> None:
        self._tail.drain(self._child.stderr)

    def _greet(self, hello: Hello) -> None:
        if hello.run_id != self.run_id:
            raise WireError(
                f"The engine answered for run {hello.run_id!r} instead of {self.run_id!r}.",
                "Reinstall Splitpin so that launcher and engine are of the same version.",
            )

    def _watch(self) -> None:
        """Tell how the engine ended, whatever happens on the way: an engine that nobody watches is ended."""
        try:
            problem = self._watch_to_end()
        except Exception as error:
            log.exception("engine run %s can no longer be watched", self.run_id)
            problem = self._give_up_watching(error)
        self._ended.set()
        self._on_end(problem)

    def _watch_to_end(self) -> Problem | None:
        """Follow the process to its end, clear its tree, wait for its memory, and say how it ended."""
        memory = self._open_memory()
        try:
            held = self._follow(memory)
            told_to_end = time.monotonic()
            if held is not None:
                log.info("engine run %s stopped by: %s", self.run_id, self._ladder.descend(self._child))
            gone = self._clear()
            if gone:
                self._wait_for_memory(memory, held, told_to_end)
            code = self._child.poll()
        finally:
            memory.close()
        problem = self._verdict(code, gone=gone)
        log.info("engine run %s ended with code %s: %s", self.run_id, code, problem.sentence if problem else "as asked")
        return problem

    def _give_up_watching(self, error: Exception) -> Problem | None:
        """End the tree after a fault of our own; a stop that was asked for is still no problem."""
        if self._clear() and self._stop_wanted.is_set():
            return None
        return EngineStoppedError(
            f"Splitpin could not watch the engine any more ({type(error).__name__}: {error}) and ended it.",
            "Start it again; if it happens again, send the log.",
            pid=self._child.pid,
            log_file=str(self._log_file),
        ).problem

    def _clear(self) -> bool:
        """End what is left of the tree and forget the run; False if something still lives."""
        gone = self._ladder.clear(self._child)
        for reader in self._readers:
            reader.join(DRAIN_S)
        if gone:
            self._ledger.remove(self.run_id)
            if not any(reader.is_alive() for reader in self._readers):  # a stranger may have inherited a pipe
                self._child.close()
        return gone

    def _follow(self, memory: LiveMemory) -> "_Held | None":
        """Return when the engine has ended or must: with what it holds at that moment if a stop was asked for."""
        while self._child.poll() is None:
            woken = self._look.wait(REFRESH_S)
            self._look.clear()
            if self._stop_wanted.is_set():
                return _Held.now(memory, self._child)
            if self._problem is not None:
                if self._problem.kind != WireError.kind:  # it said that it ends; let it free its memory
                    self._child.wait(self._ladder.command_s)
                return None
            if woken:  # its output ended: so will it, in a moment
                self._child.wait(REFRESH_S)
            else:
                self._update_entry(children=_workers(self._child))
        return None

    def _wait_for_memory(self, memory: LiveMemory, held: "_Held | None", since: float) -> None:
        """After a crash nobody knows what was in use just before; then standing still is enough."""
        if self._hurry.is_set():
            return
        self._memory_return = wait_for_return(
            MemoryUse() if held is None else held.use,
            memory.read,
            expected_vram=None if held is None else held.vram_bytes,
            since=since,
            give_up=self._hurry.is_set,
        )
        log.info("engine run %s: %s", self.run_id, self._memory_return.words or "its memory stands still")

    def _verdict(self, code: int | None, *, gone: bool) -> Problem | None:
        if not gone:
            return EngineStoppedError(
                f"The engine (PID {self._child.pid}) was told to end, but still holds its memory.",
                "The driver has not released it; sign out or restart the computer.",
                pid=self._child.pid,
                log_file=str(self._log_file),
            ).problem
        if self._stop_wanted.is_set():
            return None
        details = {"log_tail": "\n".join(self.log_lines), "log_file": str(self._log_file)}
        if self._problem is None:
            return explain_end(code if code is not None else 0, self.log_lines, log_file=str(self._log_file)).problem
        problem = explain_taken_port(self._problem, self._ledger.read)  # taken between our test and the engine's try
        return problem.model_copy(update={"numbers": {**problem.numbers, **details}})

    def _update_entry(self, **news: object) -> None:
        """Bring the ledger up to date; what the disk refused once is tried again."""
        with self._recording:
            entry = self._entry.model_copy(update=news)
            if entry != self._entry or not self._recorded:
                self._entry = entry
                self._recorded = self._ledger.record(entry)


def _workers(child: ChildProcess) -> tuple[ProcessIdentity, ...]:
    """The tree without its root, as the ledger wants it."""
    return tuple(member for member in child.tree() if member.pid != child.pid)
