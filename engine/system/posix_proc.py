"""Processes as the Linux kernel tells of them in /proc. Light on purpose: the parent guard starts with it."""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SAME_START_S = 1.0  # /proc/stat rounds the boot time to whole seconds
FREEZE_POLL_S = 0.001
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class ProcStat:
    """The fields of /proc/PID/stat that say who belongs to whom."""

    pid: int
    ppid: int
    session: int
    state: str
    start_ticks: int

    @property
    def create_time(self) -> float:
        """Seconds since the epoch, as psutil computes it."""
        return boot_time() + self.start_ticks / TICKS_PER_S

    @property
    def alive(self) -> bool:
        """A zombie has ended; only its exit code waits."""
        return self.state not in "ZX"


def read_stat(pid: int) -> ProcStat | None:
    """The process, or None if there is none."""
    try:
        text = (PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # the name in parentheses may itself hold spaces and parentheses
    fields = text[text.rindex(")") + 2 :].split()
    return ProcStat(pid=pid, state=fields[0], ppid=int(fields[1]), session=int(fields[3]), start_ticks=int(fields[19]))


def all_stats() -> tuple[ProcStat, ...]:
    """Every process that can be seen now."""
    found = (read_stat(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit())
    return tuple(stat for stat in found if stat is not None)


def boot_time() -> float:
    """Seconds since the epoch at which the kernel started."""
    for line in (PROC / "stat").read_text("utf-8").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    raise OSError("/proc/stat has no btime")


def is_same(pid: int, create_time: float) -> bool | None:
    """Whether `pid` lives and started at `create_time`; None if no such process lives."""
    stat = read_stat(pid)
    if stat is None or not stat.alive:
        return None
    return abs(stat.create_time - create_time) <= SAME_START_S


def carries(pid: int, mark: bytes) -> bool:
    """The process was started with `mark` (`NAME=value`) in its environment, or inherited it."""
    try:
        return mark in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or it is not ours to read
        return False


def family(session: int | None, known: set[int], stats: tuple[ProcStat, ...]) -> tuple[ProcStat, ...]:
    """All that live of a session or are `known`, and all their descendants.

    The session holds on to processes whose parent has ended; descent finds those that opened a session of their own.
    """
    members = known | {stat.pid for stat in stats if stat.session == session}
    grown = True
    while grown:
        children = {stat.pid for stat in stats if stat.ppid in members} - members
        members |= children
        grown = bool(children)
    return tuple(stat for stat in stats if stat.pid in members and stat.alive)


def kill_exactly(stat: ProcStat, signal_number: int) -> None:
    """Send a signal to this very process; nothing happens if it has ended, even if its pid was given away.

    Raises:
        PermissionError: it belongs to somebody else.
    """
    with handle_of(stat) as handle, suppress(ProcessLookupError):
        if handle is not None:
            signal.pidfd_send_signal(handle, signal_number)


def freeze(stats: tuple[ProcStat, ...], wait_s: float) -> None:
    """Hold these very processes where they are and wait until they stand: from then on they start no others.

    One that belongs to somebody else, or that a driver keeps from standing still for `wait_s`, is left as it is.
    """
    for stat in stats:
        with suppress(PermissionError):
            kill_exactly(stat, signal.SIGSTOP)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and not all(_stands(stat) for stat in stats):
        time.sleep(FREEZE_POLL_S)


def _stands(stat: ProcStat) -> bool:
    now = read_stat(stat.pid)
    return now is None or now.start_ticks != stat.start_ticks or now.state in "TtZX"


def wait_gone(stat: ProcStat, wait_s: float) -> bool:
    """Wait until this very process has ended; False if it still lives after `wait_s`."""
    with handle_of(stat) as handle:
        return handle is None or ends_within(handle, wait_s)


def ends_within(handle: int, wait_s: float | None) -> bool:
    """Wait on a process handle (pidfd_open(2)); None waits for ever."""
    ready = select.poll()
    ready.register(handle, select.POLLIN)
    return bool(ready.poll(None if wait_s is None else max(wait_s, 0) * 1000))


@contextmanager
def handle_of(stat: ProcStat) -> Iterator[int | None]:
    """An open handle to this very process, so that its pid cannot pass to another one meanwhile. None: it is gone."""
    try:
        handle = os.pidfd_open(stat.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        now = read_stat(stat.pid)
        yield handle if now is not None and now.start_ticks == stat.start_ticks else None
    finally:
        os.close(handle)
