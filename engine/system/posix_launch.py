"""Child processes on Linux: a session of their own, ended as a whole."""

import os
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

    def __init__(self, process: subprocess.Popen[bytes], parent: "_ParentThread | None" = None) -> None:
        self._process = process
        self._parent = parent
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
        if self._parent is not None:
            self._parent.release()
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
    """Starts children from a thread that lives as long as they do.

    The kernel counts a child as orphaned when the *thread* that forked it ends, and then delivers the death signal
    the engine asked for (prctl(2), PR_SET_PDEATHSIG). A short-lived worker must therefore not fork itself.
    """

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
            parent = _ParentThread(popen)
            return PosixChild(parent.child(), parent)
        except OSError as cause:
            words = os.strerror(cause.errno) if cause.errno else str(cause)
            raise LaunchRefusedError(program=argv[0], code=cause.errno, words=words) from cause


class _ParentThread:
    """Forks one child and then does nothing until it is released."""

    def __init__(self, popen: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._popen = popen
        self._child: Future[subprocess.Popen[bytes]] = Future()
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._work, name="parent of a child", daemon=True)
        self._thread.start()

    def child(self) -> subprocess.Popen[bytes]:
        """The child, or the OSError of its start."""
        return self._child.result()

    def release(self) -> None:
        """Let the thread end."""
        self._released.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._child.set_result(self._popen())
        except OSError as cause:
            self._child.set_exception(cause)
        else:
            self._released.wait()
