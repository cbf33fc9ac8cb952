"""Child processes on Windows: created asleep, put into a job, then woken."""

import ctypes
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from typing_extensions import override

from engine.contract.processes import ProcessIdentity
from engine.system.popen_child import PopenChild
from engine.system.protocols import ChildLauncher, ChildProcess, LaunchRefusedError
from engine.system.windows_dll import function, system_dll, words
from engine.system.windows_handles import (
    QUERY_LIMITED,
    SET_INFORMATION,
    SET_QUOTA,
    SUSPEND_RESUME,
    SYNCHRONIZE,
    TERMINATE,
    create_time,
    ends_within,
    open_process,
)
from engine.system.windows_job import Job
from engine.system.windows_speed import full_speed

CREATE_SUSPENDED = 0x0000_0004
CREATE_DEFAULT_ERROR_MODE = 0x0400_0000
CREATE_NO_WINDOW = 0x0800_0000
RIGHTS = TERMINATE | SET_QUOTA | SET_INFORMATION | SUSPEND_RESUME | QUERY_LIMITED
KILLED = 1
KILL_WAIT_S = 10.0  # a driver may hold a killed process for a while


class WindowsChild(PopenChild):
    """A child in a job of its own. The job also holds what a venv's python.exe starts in its place."""

    def __init__(self, process: subprocess.Popen[bytes], identity: ProcessIdentity, job: Job) -> None:
        super().__init__(process, identity)
        self._job = job

    @override
    def kill_tree(self) -> None:
        deadline = time.monotonic() + KILL_WAIT_S
        with ExitStack() as handles:
            members: list[int] = []
            for pid in self._job.pids():
                with suppress(OSError):  # it has ended meanwhile
                    members.append(handles.enter_context(open_process(pid, SYNCHRONIZE)))
            self._job.terminate(KILLED)
            for member in members:
                ends_within(member, deadline - time.monotonic())
        self.wait(max(deadline - time.monotonic(), 0))

    @override
    def tree(self) -> tuple[ProcessIdentity, ...]:
        found: list[ProcessIdentity] = []
        for pid in self._job.pids():
            with suppress(OSError), open_process(pid, QUERY_LIMITED) as handle:  # or it has ended meanwhile
                found.append(ProcessIdentity(pid=pid, create_time=create_time(handle)))
        return tuple(found)

    @override
    def close(self) -> None:
        self.kill_tree()
        self._job.close()
        for pipe in (self.stdin, self.stdout, self.stderr):
            with suppress(OSError):  # unread input of a process that is gone
                pipe.close()


class WindowsLauncher(ChildLauncher):
    """The child sleeps until it is inside its job, so that nothing it starts can be outside."""

    @override
    def start(self, argv: Sequence[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> ChildProcess:
        process: subprocess.Popen[bytes] | None = None
        job: Job | None = None
        try:
            job = Job()
            process = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                creationflags=CREATE_SUSPENDED | CREATE_NO_WINDOW | CREATE_DEFAULT_ERROR_MODE,
            )
            with open_process(process.pid, RIGHTS) as handle:
                job.add(handle)
                identity = ProcessIdentity(pid=process.pid, create_time=create_time(handle))
                full_speed(handle)
                _resume(handle)
            return WindowsChild(process, identity, job)
        except OSError as cause:
            _undo(process, job)
            code = getattr(cause, "winerror", None) or cause.errno
            raise LaunchRefusedError(
                program=argv[0], code=code, words=words(code) if code is not None else str(cause)
            ) from cause


def _resume(process: int) -> None:
    """Wake all threads of a process that was created asleep; `subprocess` keeps no thread handle to do it with."""
    resume = function(system_dll("ntdll.dll"), "NtResumeProcess", ctypes.c_int32, ctypes.c_void_p)
    status = resume(process)
    if status != 0:
        raise OSError(f"NtResumeProcess: status 0x{status & 0xFFFF_FFFF:08X}")


def _undo(process: subprocess.Popen[bytes] | None, job: Job | None) -> None:
    """A child that could not be fenced in must not run."""
    if process is not None:
        process.kill()
        process.communicate()
    if job is not None:
        job.close()
