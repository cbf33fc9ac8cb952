"""Process handles of Windows. Imports nothing heavy: the parent guard starts with it.

An open handle pins the process: its pid is not given away, so what was compared stays true.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from engine.system.windows_dll import failure, function, system_dll

TERMINATE = 0x0001
SET_QUOTA = 0x0100
SET_INFORMATION = 0x0200
SUSPEND_RESUME = 0x0800
QUERY_LIMITED = 0x1000
SYNCHRONIZE = 0x0010_0000

ERROR_ACCESS_DENIED = 5
ERROR_INVALID_PARAMETER = 87  # OpenProcess: there is no such pid
SAME_START_S = 0.01  # file times are exact; floats differ a little between readers

_INFINITE = 0xFFFF_FFFF
_WAIT_OBJECT_0 = 0
_EPOCH_IN_FILETIME = 116_444_736_000_000_000  # 1970 in units of 100 ns since 1601


class _Kernel:
    def __init__(self) -> None:
        dll = system_dll("kernel32.dll")
        number, handle = ctypes.c_uint32, ctypes.c_void_p
        times = (ctypes.POINTER(ctypes.c_uint64),) * 4
        self.open_process = function(dll, "OpenProcess", handle, number, ctypes.c_int, number)
        self.close_handle = function(dll, "CloseHandle", ctypes.c_int, handle)
        self.current_process = function(dll, "GetCurrentProcess", handle)
        self.process_times = function(dll, "GetProcessTimes", ctypes.c_int, handle, *times)
        self.wait = function(dll, "WaitForSingleObject", number, handle, number)
        self.terminate = function(dll, "TerminateProcess", ctypes.c_int, handle, number)


@cache
def _kernel() -> _Kernel:
    return _Kernel()


def current_process() -> int:
    """The pseudo handle of this process; it need not be closed."""
    return int(_kernel().current_process())


def close_handle(handle: int) -> None:
    _kernel().close_handle(handle)


@contextmanager
def open_process(pid: int, rights: int) -> Iterator[int]:
    """A handle to whoever has this pid now. Never inherited by children.

    Raises:
        OSError: `errno` is the Win32 code: 87 no such process, 5 not ours.
    """
    handle = _kernel().open_process(rights, False, pid)
    if not handle:
        raise failure("OpenProcess")
    try:
        yield handle
    finally:
        close_handle(handle)


def create_time(handle: int) -> float:
    """Seconds since the epoch."""
    created, exited, kernel_time, user_time = (ctypes.c_uint64() for _ in range(4))
    references = (ctypes.byref(time) for time in (created, exited, kernel_time, user_time))
    if not _kernel().process_times(handle, *references):
        raise failure("GetProcessTimes")
    return (created.value - _EPOCH_IN_FILETIME) / 1e7


def ends_within(handle: int, wait_s: float | None) -> bool:
    """Wait until the process has ended; None waits for ever. False if it still lives."""
    wait_ms = _INFINITE if wait_s is None else max(round(wait_s * 1000), 0)
    return int(_kernel().wait(handle, wait_ms)) == _WAIT_OBJECT_0


def terminate(handle: int, exit_code: int) -> bool:
    """End the process. False if the system refuses, as it does for one that is ending already."""
    return bool(_kernel().terminate(handle, exit_code))
