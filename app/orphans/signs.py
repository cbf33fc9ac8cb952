"""What a single process row tells: how it was started, who its parent says it is, whether it is one of Splitpin's.

Pure; works on Windows paths on Linux and the other way round.
"""

import re
from pathlib import PurePosixPath, PureWindowsPath

from engine.contract.processes import ProcessIdentity, ProcessRow
from engine.contract.units import GIB, MIB

GPU_USER_BYTES = 256 * MIB  # a bare CUDA context takes more; a window drawn by the GPU takes less
LARGE_BYTES = GIB
SAME_START_S = 0.5  # creation times of one process, read twice or by two versions of psutil, differ by less

_SPAWN = re.compile(r"from multiprocessing\.spawn import spawn_main|--multiprocessing-fork\b")
_SPAWN_PARENT = re.compile(r"(?:spawn_main\(.*?|--multiprocessing-fork\b.*?)parent_pid=(\d+)")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?(?:\.exe)?", re.IGNORECASE)
_REAPERS = {"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "launchd"}
_OVER = {"zombie", "dead", "exiting"}


def same_process(one: ProcessIdentity, other: ProcessIdentity) -> bool:
    """Whether two identities mean one process: a pid alone is reused."""
    return one.pid == other.pid and abs(one.create_time - other.create_time) <= SAME_START_S


def identity_of(row: ProcessRow) -> ProcessIdentity | None:
    """The identity, or None if the creation time cannot be read."""
    return None if row.create_time is None else ProcessIdentity(pid=row.pid, create_time=row.create_time)


def is_over(row: ProcessRow) -> bool:
    """Ended, but not yet taken off the table."""
    return (row.status or "").lower() in _OVER


def base_name(path: str) -> str:
    """File name of a Windows or POSIX path."""
    return PureWindowsPath(path).name or path


def program(row: ProcessRow) -> str:
    """Name for people: "python.exe"."""
    if row.exe:
        return base_name(row.exe)
    return base_name(row.cmdline[0]) if row.cmdline else "an unknown program"


def command_line(row: ProcessRow) -> str | None:
    """The command line as one text, or None if it cannot be read."""
    return " ".join(row.cmdline) if row.cmdline else None


def is_spawn_child(row: ProcessRow) -> bool:
    """Started by Python's multiprocessing: the command line is only its bootstrap and names nothing else."""
    return bool(_SPAWN.search(command_line(row) or ""))


def is_python(row: ProcessRow) -> bool:
    """The program is a Python interpreter."""
    return any(_PYTHON.fullmatch(base_name(path)) for path in _programs(row))


def is_posix(row: ProcessRow) -> bool:
    """The row is from Linux: there the ppid of an orphan changes to its reaper, on Windows it never changes."""
    return (row.exe or (row.cmdline or ("",))[0]).startswith("/")


def is_reaper(row: ProcessRow) -> bool:
    """A process that adopts the children of the dead (Linux)."""
    return row.pid == 1 or (is_posix(row) and program(row) in _REAPERS)


def option(row: ProcessRow, name: str) -> str | None:
    """Value of `--name value` or `--name=value` on the command line."""
    words = row.cmdline or ()
    for number, word in enumerate(words):
        if word == name and number + 1 < len(words):
            return words[number + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def runs_engine(row: ProcessRow) -> bool:
    """The command line is that of Splitpin's engine, started by a launcher (it carries a run id)."""
    words = row.cmdline or ()
    module = any(words[i : i + 2] == ("-m", "engine") for i in range(len(words)))
    script = any(base_name(word).removesuffix(".exe") == "splitpin-engine" for word in words[:2])
    return (module or script) and "serve" in words and option(row, "--run-id") is not None


def runs_launcher(row: ProcessRow) -> bool:
    """The command line is that of Splitpin's window or one of its doors."""
    words = row.cmdline or ()
    if any(words[i : i + 2] == ("-m", "app") for i in range(len(words))):
        return True
    return any(base_name(path).lower() in ("splitpin", "splitpin.exe") for path in (*_programs(row), *words[1:2]))


def is_in(row: ProcessRow, folders: tuple[str, ...]) -> bool:
    """The program lies in one of the folders, by its real path or by the path it was started with."""
    return any(_is_below(path, folder) for path in _programs(row) for folder in folders)


def declared_parent_pid(row: ProcessRow) -> int | None:
    """The parent that the command line names: an engine's launcher, or the parent of a spawn child."""
    if (engine := option(row, "--parent-pid")) is not None and engine.isdigit() and runs_engine(row):
        return int(engine)
    spawned = _SPAWN_PARENT.search(command_line(row) or "")
    return int(spawned[1]) if spawned else None


def declared_parent(row: ProcessRow) -> ProcessIdentity | None:
    """The launcher that an engine's command line names, with its creation time."""
    pid, started = declared_parent_pid(row), option(row, "--parent-create-time")
    if pid is None or started is None or not runs_engine(row):
        return None
    try:
        return ProcessIdentity(pid=pid, create_time=float(started))
    except ValueError:
        return None


def _programs(row: ProcessRow) -> tuple[str, ...]:
    """Real path and the path as started; they differ in a virtual environment."""
    return tuple(path for path in (row.exe, row.cmdline[0] if row.cmdline else None) if path)


def _is_below(path: str, folder: str) -> bool:
    if folder.startswith("/") != path.startswith("/"):
        return False
    if folder.startswith("/"):
        return PurePosixPath(path).is_relative_to(folder)
    return PureWindowsPath(path).is_relative_to(PureWindowsPath(folder))  # letters of any case, both slashes
