"""The table of all processes on Linux, straight from /proc: three small reads a process, two more for a close look.

psutil needs five times as long for the same, and it remembers the start time of whoever had a pid before.
"""

import os
import pwd
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from typing_extensions import override

from engine.contract.processes import ProcessRow, ProcessTable, RunEntry
from engine.system.posix_proc import TICKS_PER_S, boot_time
from engine.system.process_reader import CloseLook
from engine.system.protocols import ProcessReader

PROC = "/proc"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk-sleep",
    "T": "stopped",
    "t": "tracing-stop",
    "Z": "zombie",
    "X": "dead",
    "x": "dead",
    "I": "idle",
}
_LOCKED = re.compile(rb"^VmLck:\s+(\d+) kB", re.MULTILINE)
_USER = re.compile(rb"^Uid:\s+(\d+)", re.MULTILINE)


class PosixReader(ProcessReader):
    """GPU memory by process comes from whoever knows it."""

    def __init__(self, gpu_bytes_by_pid: Callable[[], Mapping[int, int]], proc: str = PROC) -> None:
        self._gpu_bytes_by_pid = gpu_bytes_by_pid
        self._proc = proc

    @override
    def read(self, engine_dirs: Sequence[str], ledger: Sequence[RunEntry]) -> ProcessTable:
        now = time.time()
        gpu = self._gpu_bytes_by_pid()
        look = CloseLook.at(engine_dirs, ledger, gpu, windows=False)
        booted = boot_time()
        rows = (
            _row(f"{self._proc}/{name}", int(name), gpu.get(int(name)), look, booted)
            for name in os.listdir(self._proc)  # noqa: PTH208 - a Path for each costs as much as the reading
            if name.isdigit()
        )
        return ProcessTable(
            now=now,
            user=_name_of(os.getuid()),
            engine_dirs=tuple(engine_dirs),
            ledger=tuple(ledger),
            processes=tuple(row for row in rows if row is not None),
        )


def _row(folder: str, pid: int, gpu_bytes: int | None, look: CloseLook, booted: float) -> ProcessRow | None:
    """One process, or None if it has ended meanwhile. State, parent and start come from one read."""
    stat = _read(f"{folder}/stat")
    if not stat:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name in parentheses may itself hold spaces and parentheses
    exe = _link(f"{folder}/exe")
    close = look.wanted(pid, exe)
    words = _read(f"{folder}/cmdline") if close else b""
    status = _read(f"{folder}/status") if close else b""
    memory = _read(f"{folder}/statm").split()
    user, locked = _USER.search(status), _LOCKED.search(status)
    return ProcessRow(
        pid=pid,
        ppid=int(fields[1]),
        create_time=booted + int(fields[19]) / TICKS_PER_S,
        exe=exe,
        cmdline=_words(words),
        user=None if user is None else _name_of(int(user[1])),
        status=_STATES.get(fields[0].decode(), "unknown"),
        rss_bytes=int(memory[1]) * _PAGE_BYTES if memory else None,
        private_bytes=max(int(memory[1]) - int(memory[2]), 0) * _PAGE_BYTES if memory else None,
        locked_bytes=None if locked is None else int(locked[1]) * 1024,
        gpu_bytes=gpu_bytes,
    )


def _words(line: bytes) -> tuple[str, ...] | None:
    """Arguments end with a zero byte; a program that rewrites its command line may leave one text with blanks."""
    if not line:
        return None
    text = line.decode("utf-8", errors="replace")
    return tuple(text.removesuffix("\0").split("\0")) if "\0" in text else tuple(text.split(" "))


def _read(file: str) -> bytes:
    """The whole file, or nothing: the process has ended, or it is not ours to read."""
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError:
        return b""
    try:
        found = b""
        while piece := os.read(handle, 65536):
            found += piece
        return found
    except OSError:
        return b""
    finally:
        os.close(handle)


def _link(file: str) -> str | None:
    try:
        target = os.readlink(file)  # noqa: PTH115
    except OSError:
        return None
    return target.removesuffix(" (deleted)") or None


@lru_cache(maxsize=256)
def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
