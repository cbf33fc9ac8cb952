"""The table of all processes: which of them are read closely, and the reader for systems where psutil is quick."""

import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TypeVar

import psutil
from typing_extensions import override

from engine.contract.processes import ProcessRow, ProcessTable, RunEntry
from engine.system.protocols import ProcessReader

_PYTHON_LIKE = re.compile(r"(python|py|splitpin)[\w.\-]*", re.IGNORECASE)

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CloseLook:
    """Decides whose command line and user are worth reading, the slow part of a process.

    They matter for Python programs, for programs inside the engine's folders, for those in the ledger, for those that
    hold GPU memory, and for those whose program cannot be told.
    """

    folders: tuple[str, ...]
    pids: frozenset[int]
    windows: bool

    @classmethod
    def at(
        cls, engine_dirs: Sequence[str], ledger: Sequence[RunEntry], gpu_pids: Collection[int], *, windows: bool
    ) -> "CloseLook":
        known = {identity.pid for run in ledger for identity in (run.engine, *run.children)}
        folders = tuple(_comparable(folder, windows).rstrip("/") + "/" for folder in engine_dirs)
        return cls(folders, frozenset(known | set(gpu_pids)), windows)

    def wanted(self, pid: int, exe: str | None) -> bool:
        if exe is None or pid in self.pids:
            return True
        name = (PureWindowsPath(exe) if self.windows else PurePosixPath(exe)).stem
        return _PYTHON_LIKE.fullmatch(name) is not None or _comparable(exe, self.windows).startswith(self.folders)


def _comparable(path: str, windows: bool) -> str:
    return path.replace("\\", "/").lower() if windows else path


class PsutilReader(ProcessReader):
    """All of it through psutil, as on Linux. GPU memory by process comes from whoever knows it."""

    def __init__(self, gpu_bytes_by_pid: Callable[[], Mapping[int, int]]) -> None:
        self._gpu_bytes_by_pid = gpu_bytes_by_pid

    @override
    def read(self, engine_dirs: Sequence[str], ledger: Sequence[RunEntry]) -> ProcessTable:
        now = time.time()
        gpu = self._gpu_bytes_by_pid()
        look = CloseLook.at(engine_dirs, ledger, gpu, windows=os.name == "nt")
        rows: list[ProcessRow] = []
        for process in psutil.process_iter():
            with process.oneshot():
                rows.append(_row(process, gpu.get(process.pid), look))
        return ProcessTable(
            now=now,
            user=own_user(),
            engine_dirs=tuple(engine_dirs),
            ledger=tuple(ledger),
            processes=tuple(row for row in rows if row.create_time is not None),  # the others ended meanwhile
        )


def _row(process: psutil.Process, gpu_bytes: int | None, look: CloseLook) -> ProcessRow:
    exe = ask(process.exe) or None
    cmdline, user = details(process) if look.wanted(process.pid, exe) else (None, None)
    memory = ask(process.memory_info)
    return ProcessRow(
        pid=process.pid,
        ppid=ask(process.ppid),
        create_time=ask(process.create_time),
        exe=exe,
        cmdline=cmdline,
        user=user,
        status=ask(process.status),
        rss_bytes=None if memory is None else memory.rss,
        gpu_bytes=gpu_bytes,
    )


def details(process: psutil.Process) -> tuple[tuple[str, ...] | None, str | None]:
    """Command line and user."""
    cmdline = ask(process.cmdline)
    return tuple(cmdline) if cmdline else None, ask(process.username)


def own_user() -> str | None:
    """Who runs this program, spelled as in the table."""
    return ask(psutil.Process().username)


def ask(question: Callable[[], Value]) -> Value | None:
    """One answer, or None: the process ended meanwhile, is not ours to read, or the system does not tell."""
    try:
        return question()
    except (psutil.Error, OSError):
        return None
