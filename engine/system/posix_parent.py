"""The end of the parent, noticed on Linux: by the kernel, and by a thread that waits for it."""

import ctypes
import os
import signal
import threading
import time

from engine.system.posix_proc import ends_within, is_same, read_stat

PR_SET_PDEATHSIG = 1
POLL_S = 0.25
EXIT_CODE = 1


def guard(pid: int, create_time: float) -> None:
    """Arrange that this process ends when the process `pid` that started at `create_time` does.

    The kernel's signal comes when the *thread* that started us ends; it is set only if that process started us
    directly. The waiting thread needs no such care.
    """
    if os.getppid() == pid:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)
        libc.prctl.restype = ctypes.c_int
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    handle = _open(pid)
    stat = read_stat(pid)
    if stat is None or not is_same(pid, create_time):  # it ended before the guard stood
        os._exit(EXIT_CODE)
    ticks = stat.start_ticks
    threading.Thread(target=_wait, args=(pid, ticks, handle), name="parent guard", daemon=True).start()


def _open(pid: int) -> int | None:
    """A handle that becomes readable when the process ends; None on kernels before 5.3."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(EXIT_CODE)
    except (AttributeError, OSError):
        return None


def _wait(pid: int, ticks: int, handle: int | None) -> None:
    if handle is not None:
        ends_within(handle, None)
    else:  # start ticks do not move when the clock is set
        while (stat := read_stat(pid)) is not None and stat.alive and stat.start_ticks == ticks:
            time.sleep(POLL_S)
    os._exit(EXIT_CODE)
