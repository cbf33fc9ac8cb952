"""The table of all processes: which of them are read closely, and what psutil tells of one."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TypeVar

import psutil

from engine.contract.processes import RunEntry

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
