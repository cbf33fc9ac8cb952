"""The table of all processes, through psutil; GPU memory by process from whoever knows it on this system."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import TypeVar

import psutil
from typing_extensions import override

from engine.contract.processes import ProcessRow, ProcessTable, RunEntry
from engine.system.protocols import ProcessReader

PYTHON_LIKE = re.compile(r"(python|py|splitpin)[\w.\-]*", re.IGNORECASE)

Value = TypeVar("Value")


class PsutilReader(ProcessReader):
    """Reads names and memory of all processes, command lines and users only of those that can matter.

    Reading a command line of another process is the slow part on Windows. It matters for Python programs, for
    programs inside the engine's folders, for those in the ledger, and for those that hold GPU memory.
    """

    def __init__(self, gpu_bytes_by_pid: Callable[[], Mapping[int, int]]) -> None:
        self._gpu_bytes_by_pid = gpu_bytes_by_pid

    @override
    def read(self, engine_dirs: Sequence[str], ledger: Sequence[RunEntry]) -> ProcessTable:
        now = time.time()
        gpu = self._gpu_bytes_by_pid()
        known = {identity.pid for run in ledger for identity in (run.engine, *run.children)}
        folders = tuple(_comparable(folder).rstrip("/") + "/" for folder in engine_dirs)
        rows = []
        for process in psutil.process_iter():
            with process.oneshot():
                rows.append(_row(process, gpu, known, folders))
        return ProcessTable(
            now=now,
            user=_ask(psutil.Process().username),
            engine_dirs=tuple(engine_dirs),
            ledger=tuple(ledger),
            processes=tuple(row for row in rows if row.ppid is not None or row.create_time is not None),
        )


def _row(process: psutil.Process, gpu: Mapping[int, int], known: set[int], folders: tuple[str, ...]) -> ProcessRow:
    exe = _ask(process.exe) or None
    pid = process.pid
    matters = exe is None or pid in known or pid in gpu or _interesting(exe, folders)
    cmdline = _ask(process.cmdline) if matters else None
    memory = _ask(process.memory_info)
    return ProcessRow(
        pid=pid,
        ppid=_ask(process.ppid),
        create_time=_ask(process.create_time),
        exe=exe,
        cmdline=tuple(cmdline) if cmdline else None,
        user=_ask(process.username) if matters else None,
        status=_ask(process.status),
        rss_bytes=None if memory is None else memory.rss,
        gpu_bytes=gpu.get(pid),
    )


def _interesting(exe: str, folders: tuple[str, ...]) -> bool:
    name = (PureWindowsPath(exe) if os.name == "nt" else PurePosixPath(exe)).stem
    return PYTHON_LIKE.fullmatch(name) is not None or _comparable(exe).startswith(folders)


def _comparable(path: str) -> str:
    return path.replace("\\", "/").lower() if os.name == "nt" else path


def _ask(question: Callable[[], Value]) -> Value | None:
    """One answer, or None: the process ended meanwhile, is not ours to read, or the system does not tell."""
    try:
        return question()
    except (psutil.Error, OSError):
        return None
