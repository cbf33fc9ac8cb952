"""RAM and commit figures of Windows."""

import ctypes
from dataclasses import dataclass

from engine.system.windows_dll import failure, function, system_dll


class MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX. Its page-file fields are commit limits, not sizes of page files."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load_percent", ctypes.c_uint32),
        ("total_physical", ctypes.c_uint64),
        ("available_physical", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended_virtual", ctypes.c_uint64),
    )


class PerformanceInformation(ctypes.Structure):
    """PERFORMANCE_INFORMATION; all but the last three fields and `size` count pages."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("commit_total", ctypes.c_size_t),
        ("commit_limit", ctypes.c_size_t),
        ("commit_peak", ctypes.c_size_t),
        ("physical_total", ctypes.c_size_t),
        ("physical_available", ctypes.c_size_t),
        ("system_cache", ctypes.c_size_t),
        ("kernel_total", ctypes.c_size_t),
        ("kernel_paged", ctypes.c_size_t),
        ("kernel_nonpaged", ctypes.c_size_t),
        ("page_size", ctypes.c_size_t),
        ("handle_count", ctypes.c_uint32),
        ("process_count", ctypes.c_uint32),
        ("thread_count", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Ram:
    """RAM that Windows can use, and what of it can be given out without paging, in bytes."""

    total: int
    available: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit limit (RAM plus page files) and what is promised of it, in bytes."""

    limit: int
    used: int

    @property
    def left(self) -> int:
        return max(self.limit - self.used, 0)


def ram() -> Ram:
    """GlobalMemoryStatusEx.

    Raises:
        OSError: the call failed.
    """
    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    ask = function(system_dll("kernel32.dll"), "GlobalMemoryStatusEx", ctypes.c_int, ctypes.c_void_p)
    if not ask(ctypes.byref(status)):
        raise failure("GlobalMemoryStatusEx")
    return Ram(status.total_physical, status.available_physical)


def commit() -> Commit:
    """GetPerformanceInfo.

    Raises:
        OSError: the call failed.
    """
    info = PerformanceInformation(size=ctypes.sizeof(PerformanceInformation))
    kernel = system_dll("kernel32.dll")
    ask = function(kernel, "K32GetPerformanceInfo", ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)
    if not ask(ctypes.byref(info), ctypes.sizeof(info)):
        raise failure("GetPerformanceInfo")
    return Commit(limit=info.commit_limit * info.page_size, used=info.commit_total * info.page_size)
