"""VirtualLock: pages that Windows keeps in RAM.

A process may lock about as much as its *minimum* working set, 200 KiB by default. So minimum and maximum are raised
by what is to be locked, before, and lowered again when it is unlocked. Raising the maximum alone changes nothing.
"""

import ctypes
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from typing_extensions import override

from engine.contract.units import GIB, MIB
from engine.system.protocols import LockRefusedError, PageLocker
from engine.system.windows_dll import failure, function, system_dll, words
from engine.system.windows_handles import current_process

PAGE_BYTES = 4096
CHUNK_BYTES = GIB
HARDWS_MIN_DISABLE = 2  # soft limits: the pages are held by the locks, not by a hard working set
HARDWS_MAX_DISABLE = 8
SOFT = HARDWS_MIN_DISABLE | HARDWS_MAX_DISABLE
OVERHEAD_BYTES = 16 * MIB  # the documentation says "minus a small overhead"
ERROR_NOT_LOCKED = 158
ERROR_WORKING_SET_QUOTA = 1453
TRIES = 3
SAMPLES = 256
_VALID = 1 << 0
_LOCKED = 1 << 22


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """Minimum and maximum of this process, in bytes."""

    minimum: int
    maximum: int

    def grown(self, nbytes: int) -> "WorkingSet":
        return WorkingSet(self.minimum + nbytes, self.maximum + nbytes)


class LockCalls(Protocol):
    """The system calls of locking; each raises OSError with the Win32 code as `errno`."""

    def working_set(self) -> WorkingSet: ...

    def set_working_set(self, size: WorkingSet) -> None: ...

    def lock(self, address: int, nbytes: int) -> None: ...

    def unlock(self, address: int, nbytes: int) -> None: ...

    def page_flags(self, addresses: list[int]) -> list[int]:
        """QueryWorkingSetEx: bit 0 the page is in RAM, bit 22 it is locked."""
        ...


class WindowsLocker(PageLocker):
    """Locks all of a range or nothing, and leaves the working set as it found it once all is unlocked."""

    def __init__(self, calls: LockCalls | None = None) -> None:
        self._calls = calls or Win32LockCalls()
        self._busy = threading.Lock()
        self._before: WorkingSet | None = None
        self._locked_bytes = 0
        self._bit_shows = False

    @override
    def lock(self, address: int, nbytes: int) -> None:
        if nbytes <= 0:
            raise ValueError(f"nbytes must be > 0, got {nbytes}")
        with self._busy:
            locked = 0
            try:
                if self._before is None:
                    self._before = self._calls.working_set()
                    self._bit_shows = self._probe_bit(address)
                self._resize(self._locked_bytes + nbytes + OVERHEAD_BYTES)
                for start in range(0, nbytes, CHUNK_BYTES):
                    length = min(CHUNK_BYTES, nbytes - start)
                    self._lock_chunk(address + start, length, nbytes)
                    locked = start + length
                self._verify(address, nbytes)
            except OSError as cause:
                self._undo(address, locked)
                code = cause.errno
                why = words(code) if code is not None else str(cause)
                raise LockRefusedError(asked_bytes=nbytes, code=code, words=why) from cause
            self._locked_bytes += nbytes

    @override
    def unlock(self, address: int, nbytes: int) -> None:
        with self._busy:
            self._locked_bytes -= nbytes
            self._undo(address, nbytes)

    def _lock_chunk(self, address: int, length: int, asked: int) -> None:
        """VirtualLock; if Windows still finds the working set too small, make it larger and try again."""
        for attempt in range(1, TRIES + 1):
            try:
                self._calls.lock(address, length)
                return
            except OSError as cause:
                if cause.errno != ERROR_WORKING_SET_QUOTA or attempt == TRIES:
                    raise
                self._resize(self._locked_bytes + asked + attempt * (asked // 64 + 4 * OVERHEAD_BYTES))

    def _undo(self, address: int, nbytes: int) -> None:
        for start in range(0, nbytes, CHUNK_BYTES):
            with suppress(OSError):  # 158: not locked, which is what is wanted
                self._calls.unlock(address + start, min(CHUNK_BYTES, nbytes - start))
        if self._before is not None:
            with suppress(OSError):  # a working set that stays large does no harm
                self._resize(self._locked_bytes + OVERHEAD_BYTES if self._locked_bytes else 0)

    def _resize(self, extra: int) -> None:
        assert self._before is not None
        self._calls.set_working_set(self._before.grown(extra))

    def _probe_bit(self, address: int) -> bool:
        """Whether this system shows the locked bit at all: one page is always allowed. Wine never shows it."""
        try:
            self._calls.lock(address, PAGE_BYTES)
            shows = bool(self._calls.page_flags([address])[0] & _LOCKED)
            self._calls.unlock(address, PAGE_BYTES)
        except OSError:  # the real attempt will say why
            return False
        return shows

    def _verify(self, address: int, nbytes: int) -> None:
        """Look at a sample of pages. Where the bit does not show, whether they are locked stays unknown."""
        if not self._bit_shows:
            return
        pages = -(-nbytes // PAGE_BYTES)
        step = max(pages // SAMPLES, 1)
        flags = self._calls.page_flags([address + page * PAGE_BYTES for page in range(0, pages, step)])
        missing = sum(not (flag & _VALID and flag & _LOCKED) for flag in flags)
        if missing:
            raise OSError(f"Windows agreed, yet {missing} of {len(flags)} pages looked at are not locked")


class WorkingSetEntry(ctypes.Structure):
    """PSAPI_WORKING_SET_EX_INFORMATION."""

    _fields_ = (("address", ctypes.c_size_t), ("flags", ctypes.c_size_t))


class Win32LockCalls(LockCalls):
    """kernel32, for this process."""

    def __init__(self) -> None:
        self._kernel = _kernel()
        self._process = current_process()

    @override
    def working_set(self) -> WorkingSet:
        minimum, maximum, flags = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint32()
        references = (ctypes.byref(value) for value in (minimum, maximum, flags))
        if not self._kernel.get_working_set(self._process, *references):
            raise failure("GetProcessWorkingSetSizeEx")
        return WorkingSet(minimum.value, maximum.value)

    @override
    def set_working_set(self, size: WorkingSet) -> None:
        if not self._kernel.set_working_set(self._process, size.minimum, size.maximum, SOFT):
            raise failure("SetProcessWorkingSetSizeEx")

    @override
    def lock(self, address: int, nbytes: int) -> None:
        if not self._kernel.lock(address, nbytes):
            raise failure("VirtualLock")

    @override
    def unlock(self, address: int, nbytes: int) -> None:
        if not self._kernel.unlock(address, nbytes):
            raise failure("VirtualUnlock")

    @override
    def page_flags(self, addresses: list[int]) -> list[int]:
        entries = (WorkingSetEntry * len(addresses))(*[WorkingSetEntry(address, 0) for address in addresses])
        if not self._kernel.query_working_set(self._process, entries, ctypes.sizeof(entries)):
            raise failure("QueryWorkingSetEx")
        return [entry.flags for entry in entries]


class _Kernel:
    def __init__(self) -> None:
        dll = system_dll("kernel32.dll")
        yes, number, size, pointer = ctypes.c_int, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p
        self.lock = function(dll, "VirtualLock", yes, pointer, size)
        self.unlock = function(dll, "VirtualUnlock", yes, pointer, size)
        self.get_working_set = function(dll, "GetProcessWorkingSetSizeEx", yes, pointer, pointer, pointer, pointer)
        self.set_working_set = function(dll, "SetProcessWorkingSetSizeEx", yes, pointer, size, size, number)
        self.query_working_set = function(dll, "K32QueryWorkingSetEx", yes, pointer, pointer, number)


@cache
def _kernel() -> _Kernel:
    return _Kernel()
