"""Child processes on Linux: a session of their own, ended as a whole."""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import IO

from typing_extensions import override

from engine.contract.processes import ProcessIdentity
from engine.system.posix_proc import ProcStat, all_stats, family, kill_exactly, read_stat, wait_gone
from engine.system.protocols import ChildLauncher, ChildProcess, LaunchRefusedError

KILL_WAIT_S = 10.0  # a driver may hold a killed process for a while


class PosixChild(ChildProcess):
    """A child that leads a session; its tree is that session and all descendants."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        stat = read_stat(process.pid)
        if stat is None:  # impossible before poll() has collected the exit code
            raise LaunchRefusedError(program=str(process.args), code=None, words="it vanished while starting")
        self._identity = ProcessIdentity(pid=process.pid, create_time=stat.create_time)
        self._start_ticks = stat.start_ticks
        self._seen: dict[int, int] = {}

    @property
    @override
    def pid(self) -> int:
        return self._identity.pid

    @property
    @override
    def create_time(self) -> float:
        return self._identity.create_time

    @property
    @override
    def identity(self) -> ProcessIdentity:
        return self._identity

    @property
    @override
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    @override
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    @override
    def stderr(self) -> IO[bytes]:
        assert self._process.stderr is not None
        return self._process.stderr

    @override
    def poll(self) -> int | None:
        return self._process.poll()

    @override
    def wait(self, timeout_s: float | None = None) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    @override
    def terminate(self) -> None:
        self._process.terminate()

    @override
    def kill_tree(self) -> None:
        told: dict[int, ProcStat] = {}
        while new := [stat for stat in self._living() if stat.pid not in told]:  # a told one cannot fork any more
            for stat in new:
                with suppress(PermissionError):  # a set-uid descendant is not ours to end
                    kill_exactly(stat, signal.SIGKILL)
                told[stat.pid] = stat
        deadline = time.monotonic() + KILL_WAIT_S
        self.wait(KILL_WAIT_S)
        for stat in told.values():
            wait_gone(stat, deadline - time.monotonic())

    @override
    def tree(self) -> tuple[ProcessIdentity, ...]:
        living = self._living()
        return tuple(ProcessIdentity(pid=stat.pid, create_time=stat.create_time) for stat in living)

    @override
    def close(self) -> None:
        self.kill_tree()
        for pipe in (self.stdin, self.stdout, self.stderr):
            with suppress(BrokenPipeError):  # unread input of a process that is gone
                pipe.close()

    def _living(self) -> tuple[ProcStat, ...]:
        """The session we lead and all descendants, with what an earlier call saw and has been adopted since."""
        stats = {stat.pid: stat for stat in all_stats()}
        root = stats.get(self.pid)
        if root is not None and root.start_ticks != self._start_ticks:
            return ()  # the pid has passed on, which happens only after the last of our session has ended
        adopted = {pid for pid, ticks in self._seen.items() if pid in stats and stats[pid].start_ticks == ticks}
        living = family(self.pid, adopted, tuple(stats.values()))
        self._seen = {stat.pid: stat.start_ticks for stat in living}
        return living


class PosixLauncher(ChildLauncher):
    """Starts children from a thread that lives as long as this process.

    The kernel counts a child as orphaned when the *thread* that forked it ends, and then delivers the death signal
    the engine asked for (prctl(2), PR_SET_PDEATHSIG). A short-lived worker must therefore not fork itself.
    """

    def __init__(self) -> None:
        self._starter: _Starter | None = None

    @override
    def start(self, argv: Sequence[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> ChildProcess:
        def popen() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )

        try:
            if threading.current_thread() is threading.main_thread():
                return PosixChild(popen())
            if self._starter is None:
                self._starter = _Starter()
            return PosixChild(self._starter.run(popen))
        except OSError as cause:
            words = os.strerror(cause.errno) if cause.errno else str(cause)
            raise LaunchRefusedError(program=argv[0], code=cause.errno, words=words) from cause


class _Starter:
    """One thread for all forks that are asked for off the main thread."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
        self._jobs = queue.SimpleQueue()
        threading.Thread(target=self._work, name="process starter", daemon=True).start()

    def run(self, popen: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((popen, answer))
        return answer.result()

    def _work(self) -> None:
        while True:
            popen, answer = self._jobs.get()
            try:
                answer.set_result(popen())
            except OSError as cause:
                answer.set_exception(cause)
