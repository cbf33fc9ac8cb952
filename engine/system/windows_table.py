"""The table of all processes on Windows: one snapshot, then one handle a process.

psutil would take a snapshot of the whole system for every single parent pid.
"""

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

import psutil
from typing_extensions import override

from engine.contract.processes import ProcessRow, ProcessTable, RunEntry
from engine.system.pdh import GpuUse, gpu_use_by_pid
from engine.system.process_reader import CloseLook, ask, details, own_user
from engine.system.protocols import ProcessReader
from engine.system.windows_dll import failure, function, system_dll
from engine.system.windows_handles import QUERY_LIMITED, close_handle, create_time, open_process

SNAPSHOT_OF_PROCESSES = 0x2
INVALID_HANDLE = ctypes.c_void_p(-1).value
PATH_CHARACTERS = 32768
_NOT_COUNTED = GpuUse(None, None)


class SnapshotEntry(ctypes.Structure):
    """PROCESSENTRY32W."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("usage", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("heap", ctypes.c_size_t),
        ("module", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("ppid", ctypes.c_uint32),
        ("priority", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("exe_name", ctypes.c_uint16 * 260),
    )


class MemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS_EX."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("page_faults", ctypes.c_uint32),
        ("peak_working_set", ctypes.c_size_t),
        ("working_set", ctypes.c_size_t),
        ("quotas", ctypes.c_size_t * 4),
        ("page_file", ctypes.c_size_t),
        ("peak_page_file", ctypes.c_size_t),
        ("private", ctypes.c_size_t),
    )


class _Kernel:
    def __init__(self) -> None:
        dll = system_dll("kernel32.dll")
        yes, number, pointer = ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p
        self.snapshot = function(dll, "CreateToolhelp32Snapshot", pointer, number, number)
        self.first = function(dll, "Process32FirstW", yes, pointer, pointer)
        self.next = function(dll, "Process32NextW", yes, pointer, pointer)
        self.image = function(dll, "QueryFullProcessImageNameW", yes, pointer, number, ctypes.c_wchar_p, pointer)
        self.memory = function(dll, "K32GetProcessMemoryInfo", yes, pointer, pointer, number)


@cache
def _kernel() -> _Kernel:
    return _Kernel()


class WindowsReader(ProcessReader):
    """GPU memory by process is `Dedicated` and `Shared Usage` of PDH, the only teller on Windows; None: not counted.

    How much memory another process keeps locked is told by nobody.
    """

    @override
    def read(self, engine_dirs: Sequence[str], ledger: Sequence[RunEntry]) -> ProcessTable:
        now = time.time()
        gpu = gpu_use_by_pid()
        look = CloseLook.at(engine_dirs, ledger, gpu, windows=True)
        return ProcessTable(
            now=now,
            user=own_user(),
            engine_dirs=tuple(engine_dirs),
            ledger=tuple(ledger),
            processes=tuple(
                _row(pid, ppid, name, gpu.get(pid, _NOT_COUNTED), look) for pid, ppid, name in snapshot() if pid
            ),
        )


def snapshot() -> Iterator[tuple[int, int, str]]:
    """(pid, ppid, file name) of every process. A ppid is only a number: its owner may have ended."""
    kernel = _kernel()
    handle = kernel.snapshot(SNAPSHOT_OF_PROCESSES, 0)
    if handle in (None, INVALID_HANDLE):
        raise failure("CreateToolhelp32Snapshot")
    try:
        entry = SnapshotEntry(size=ctypes.sizeof(SnapshotEntry))
        more = kernel.first(handle, ctypes.byref(entry))
        while more:
            name = bytes(entry.exe_name).decode("utf-16-le", errors="replace").partition("\0")[0]
            yield entry.pid, entry.ppid, name
            more = kernel.next(handle, ctypes.byref(entry))
    finally:
        close_handle(handle)


def _row(pid: int, ppid: int, name: str, gpu: GpuUse, look: CloseLook) -> ProcessRow:
    created: float | None = None
    exe: str | None = name or None
    memory: MemoryCounters | None = None
    with suppress(OSError), open_process(pid, QUERY_LIMITED) as handle:  # some system processes are closed to us
        created = create_time(handle)
        exe = _image(handle) or exe
        memory = _memory(handle)
    cmdline, user = None, None
    if created is not None and look.wanted(pid, exe):
        process = ask(lambda: psutil.Process(pid))
        cmdline, user = details(process) if process is not None else (None, None)
    return ProcessRow(
        pid=pid,
        ppid=ppid,
        create_time=created,
        exe=exe,
        cmdline=cmdline,
        user=user,
        rss_bytes=None if memory is None else int(memory.working_set),
        private_bytes=None if memory is None else int(memory.private) or None,
        gpu_bytes=gpu.dedicated,
        gpu_shared_bytes=gpu.shared,
    )


def _image(handle: int) -> str | None:
    path = ctypes.create_unicode_buffer(PATH_CHARACTERS)
    length = ctypes.c_uint32(PATH_CHARACTERS)
    return path.value if _kernel().image(handle, 0, path, ctypes.byref(length)) else None


def _memory(handle: int) -> MemoryCounters | None:
    counters = MemoryCounters(size=ctypes.sizeof(MemoryCounters))
    known = _kernel().memory(handle, ctypes.byref(counters), ctypes.sizeof(counters))
    return counters if known else None
