"""Child processes on Linux: a session of their own, ended as a whole."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from typing_extensions import override

from engine.contract.processes import ProcessIdentity
from engine.system.popen_child import PopenChild
from engine.system.posix_parent import PR_SET_PDEATHSIG
from engine.system.posix_proc import ProcStat, all_stats, carries, family, freeze, kill_exactly, read_stat, wait_gone
from engine.system.protocols import ChildLauncher, ChildProcess, LaunchRefusedError

KILL_WAIT_S = 10.0  # a driver may hold a killed process for a while
FREEZE_S = 1.0
MARK = "SPLITPIN_TREE"  # in the environment of a child and of all that it starts
LOST = 1


class PosixChild(PopenChild):
    """A child that leads a session. Its tree is that session, all descendants, and what carries the child's mark.

    The mark finds a process that opened a session of its own and lost its parent before anybody looked.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], mark: bytes = b"", parent: "_ParentThread | None" = None
    ) -> None:
        stat = read_stat(process.pid)
        if stat is None:  # impossible before poll() has collected the exit code
            raise LaunchRefusedError(program=str(process.args), code=None, words="it vanished while starting")
        super().__init__(process, ProcessIdentity(pid=process.pid, create_time=stat.create_time))
        self._mark = mark
        self._parent = parent
        self._start_ticks = stat.start_ticks
        self._seen: dict[int, int] = {}

    @override
    def kill_tree(self) -> None:
        deadline = time.monotonic() + KILL_WAIT_S
        ended: dict[int, ProcStat] = {}
        while frozen := self._frozen(ended):  # again, for one that was between fork and exec is not seen at first
            for stat in frozen.values():
                with suppress(PermissionError):  # a set-uid descendant is not ours to end
                    kill_exactly(stat, signal.SIGKILL)
            for stat in frozen.values():
                wait_gone(stat, deadline - time.monotonic())
            ended |= frozen
        self.wait(max(deadline - time.monotonic(), 0.0))

    def _frozen(self, ended: Mapping[int, ProcStat]) -> dict[int, ProcStat]:
        """What lives of the tree beside what was ended, standing still."""
        frozen: dict[int, ProcStat] = {}
        while new := [stat for stat in self._living(marked=True) if stat.pid not in frozen and stat.pid not in ended]:
            freeze(tuple(new), FREEZE_S)  # whoever stands cannot start another one behind our back
            frozen |= {stat.pid: stat for stat in new}
        return frozen

    @override
    def tree(self) -> tuple[ProcessIdentity, ...]:
        living = self._living(marked=self.poll() is not None)
        return tuple(ProcessIdentity(pid=stat.pid, create_time=stat.create_time) for stat in living)

    @override
    def close(self) -> None:
        self.kill_tree()
        if self._parent is not None:
            self._parent.release()
        for pipe in (self.stdin, self.stdout, self.stderr):
            with suppress(BrokenPipeError):  # unread input of a process that is gone
                pipe.close()

    def _living(self, *, marked: bool) -> tuple[ProcStat, ...]:
        """The tree now, with what an earlier call saw and has been adopted since.

        Args:
            marked: look for the mark in every process too, which takes some 20 µs each.
        """
        stats = {stat.pid: stat for stat in all_stats()}
        root = stats.get(self.pid)
        # once the pid has passed on, nobody of our session lives: the kernel keeps the number of a session in use
        session = self.pid if root is None or root.start_ticks == self._start_ticks else None
        known = {pid for pid, ticks in self._seen.items() if pid in stats and stats[pid].start_ticks == ticks}
        if marked and self._mark:
            known |= {pid for pid in stats if carries(pid, self._mark)}
        living = family(session, known, tuple(stats.values()))
        self._seen = {stat.pid: stat.start_ticks for stat in living}
        return living


class PosixLauncher(ChildLauncher):
    """Starts children that the kernel ends with us, from a thread that lives as long as they do.

    The death signal (prctl(2), PR_SET_PDEATHSIG) is set before the program runs, so no program can miss it. The kernel
    sends it when the *thread* that forked the child ends: a short-lived worker must therefore not fork itself.
    """

    @override
    def start(self, argv: Sequence[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> ChildProcess:
        mark = uuid4().hex
        ends_with_us = _before_exec()

        def popen() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                list(argv),
                cwd=cwd,
                env={**(os.environ if env is None else env), MARK: mark},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=ends_with_us,
            )

        try:
            named = f"{MARK}={mark}".encode()
            if threading.current_thread() is threading.main_thread():
                return PosixChild(popen(), named)
            parent = _ParentThread(popen)
            return PosixChild(parent.child(), named, parent)
        except OSError as cause:
            words = os.strerror(cause.errno) if cause.errno else str(cause)
            raise LaunchRefusedError(program=argv[0], code=cause.errno, words=words) from cause


def _before_exec() -> Callable[[], None]:
    """What the child does between fork and exec. Everything is looked up beforehand: it may do next to nothing."""
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)
    launcher = os.getpid()

    def ask_for_death_signal() -> None:
        if prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != launcher:
            os._exit(LOST)  # refused, or the launcher ended before it was asked

    return ask_for_death_signal


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
