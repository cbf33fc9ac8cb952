"""What a child process is on both systems: a `subprocess.Popen` with its identity."""

import subprocess
from typing import IO

from typing_extensions import override

from engine.contract.processes import ProcessIdentity
from engine.system.protocols import ChildProcess


class PopenChild(ChildProcess):
    """The part of `ChildProcess` that is about the child alone; how its tree is found and ended is the system's."""

    def __init__(self, process: subprocess.Popen[bytes], identity: ProcessIdentity) -> None:
        """`process` has three binary pipes."""
        self._process = process
        self._identity = identity

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
