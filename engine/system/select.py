"""The implementations for this system. Each is imported only when asked for, so that asking for one stays cheap."""

import os
from collections.abc import Callable

from engine.contract.processes import ProcessIdentity
from engine.system.protocols import (
    ChildLauncher,
    EndResult,
    HostAllocator,
    KernelLibrary,
    LiveMemory,
    MachineProbe,
    PageLocker,
    ProcessReader,
)

_WINDOWS = os.name == "nt"
END_WAIT_S = 10.0


def machine_probe() -> MachineProbe:
    """Reads the facts of this machine."""
    if _WINDOWS:
        from engine.system.windows_probe import WindowsProbe

        return WindowsProbe()
    from engine.system.posix_probe import PosixProbe

    return PosixProbe()


def live_memory() -> LiveMemory:
    """Reads how full RAM, VRAM and the pool for pinned memory are."""
    if _WINDOWS:
        from engine.system.windows_live import WindowsLiveMemory

        return WindowsLiveMemory()
    from engine.system.posix_probe import PosixLiveMemory

    return PosixLiveMemory()


def machine_memory() -> tuple[int, Callable[[], int]]:
    """RAM in bytes, and a call that tells how much of it is available now."""
    if _WINDOWS:
        from engine.system import windows_memory

        return windows_memory.ram().total, lambda: windows_memory.ram().available
    from engine.system import posix_memory

    return posix_memory.ram().total, lambda: posix_memory.ram().available


def host_memory_left() -> tuple[int, int | None]:
    """RAM that is available, and what may still be committed (None: the system keeps to no limit), in bytes."""
    if _WINDOWS:
        from engine.system import windows_memory

        commit = windows_memory.commit()
        return windows_memory.ram().available, max(commit.limit - commit.used, 0)
    from engine.system import posix_memory

    limit, used = posix_memory.commit_readings()
    limited = limit.value is not None and used.value is not None
    return posix_memory.ram().available, posix_memory.commit_left_bytes() if limited else None


def host_allocator() -> HostAllocator:
    """Allocates host memory for banks."""
    if _WINDOWS:
        from engine.system.windows_host import WindowsAllocator

        return WindowsAllocator()
    from engine.system.posix_host import PosixAllocator

    return PosixAllocator()


def page_locker() -> PageLocker:
    """Locks pages in RAM. One per process: on Windows it keeps count of the working set."""
    if _WINDOWS:
        from engine.system.windows_lock import WindowsLocker

        return WindowsLocker()
    from engine.system.posix_host import PosixLocker

    return PosixLocker()


def least_readers() -> int:
    """How many threads must read a file at once to keep a disk busy.

    Linux reads ahead of one that reads in order. How far Windows does was not measured, so there it is two.
    """
    return 2 if _WINDOWS else 1


def kernel_library() -> KernelLibrary | None:
    """Computes with packed experts on this CPU; None: torch does."""
    from engine.system.native_library import kernel_library as find

    return find()


def give_back_heap() -> None:
    """Return what is free inside this process to the system, where a call for that exists."""
    if not _WINDOWS:
        from engine.system.posix_host import trim_heap

        trim_heap()


def prefer_large_pages(address: int, nbytes: int) -> None:
    """Say before the first touch that this memory will be used for long; a wish, where the system knows such."""
    if not _WINDOWS:
        from engine.system.posix_host import prefer_large_pages as prefer

        prefer(address, nbytes)


def gpu_bytes_by_pid() -> dict[int, int]:
    """VRAM of each process that holds any, as far as the system tells. Wakes no GPU that sleeps."""
    if _WINDOWS:
        from engine.system.pdh import gpu_bytes_by_pid as ask
    else:
        from engine.system.posix_gpu import gpu_bytes_by_pid as ask
    return ask()


def process_reader() -> ProcessReader:
    """Reads the table of all processes."""
    if _WINDOWS:
        from engine.system.windows_table import WindowsReader

        return WindowsReader()
    from engine.system.posix_table import PosixReader

    return PosixReader(gpu_bytes_by_pid)


def child_launcher() -> ChildLauncher:
    """Starts programs that cannot outlive this one."""
    if _WINDOWS:
        from engine.system.windows_launch import WindowsLauncher

        return WindowsLauncher()
    from engine.system.posix_launch import PosixLauncher

    return PosixLauncher()


def end_process(identity: ProcessIdentity, wait_s: float = END_WAIT_S) -> EndResult:
    """End this very process and wait until it is gone; a pid that has passed to another process is left alone."""
    if _WINDOWS:
        from engine.system.windows_process import end_process as end
    else:
        from engine.system.posix_process import end_process as end
    return end(identity, wait_s)


def hold_process(identity: ProcessIdentity) -> None:
    """Keep this very process from starting others until it is ended.

    Only where that is needed to find its children afterwards: on Windows they keep the pid of their parent for life.
    """
    if not _WINDOWS:
        from engine.system.posix_process import hold_process as hold

        hold(identity)


def page_file_settings() -> str | None:
    """The program that shows where the size of the page file is set; None where there is no such thing.

    "Advanced system settings", from where it is one button: the page itself has no documented way in.
    """
    windows = os.environ.get("SYSTEMROOT", "C:/Windows")
    return f"{windows}/System32/SystemPropertiesAdvanced.exe" if _WINDOWS else None


def allow_foreground(pid: int) -> None:
    """Let another process raise its window in our place. Only Windows asks for that."""
    if _WINDOWS:
        from engine.system.windows_foreground import allow_foreground as allow

        allow(pid)
