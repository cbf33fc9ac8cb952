"""Host memory on Windows: VirtualAlloc. Committing charges the commit limit at once, touched or not."""

import ctypes
import weakref
from functools import cache
from typing import Any

from typing_extensions import override

from engine.contract.errors import NotEnoughCommitError
from engine.contract.units import MIB
from engine.system.protocols import AllocationRefusedError, HostAllocator, HostBlock
from engine.system.windows_dll import failure, function, last_error, system_dll, words
from engine.system.windows_memory import commit

MEM_COMMIT = 0x1000
MEM_RESERVE = 0x2000
MEM_RELEASE = 0x8000
PAGE_READWRITE = 0x04
PAGE_BYTES = 4096
TOUCH_BYTES = 64 * MIB  # other threads get a turn between two of these


class _Kernel:
    def __init__(self) -> None:
        dll = system_dll("kernel32.dll")
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
        self.alloc = function(dll, "VirtualAlloc", pointer, pointer, size, number, number)
        self.free = function(dll, "VirtualFree", ctypes.c_int, pointer, size, number)


@cache
def _kernel() -> _Kernel:
    return _Kernel()


class WindowsBlock(HostBlock):
    """A committed range, 64 KiB aligned."""

    def __init__(self, address: int, nbytes: int) -> None:
        self._address = address
        self._nbytes = nbytes
        self._freed = False
        self._expose()

    def _expose(self) -> None:
        array: Any = (ctypes.c_ubyte * self._nbytes).from_address(self._address)
        self._array_alive = weakref.ref(array)
        self._buffer = memoryview(array).cast("B")

    @property
    @override
    def address(self) -> int:
        return self._address

    @property
    @override
    def nbytes(self) -> int:
        return self._nbytes

    @property
    @override
    def buffer(self) -> memoryview:
        return self._buffer

    @override
    def populate(self) -> None:
        for start in range(0, self._nbytes, TOUCH_BYTES):
            part = self._buffer[start : start + TOUCH_BYTES : PAGE_BYTES]
            part[:] = bytes(part)  # writing back what is there touches the page without changing it

    @override
    def free(self) -> None:
        if self._freed:
            return
        self._buffer.release()
        if self._array_alive() is not None:  # a view made from our buffer keeps the array alive
            self._expose()
            raise BufferError("cannot free memory while views of it exist")
        if not _kernel().free(self._address, 0, MEM_RELEASE):
            raise failure("VirtualFree")
        self._freed = True


class WindowsAllocator(HostAllocator):
    """Commits what is asked for, or says which of the system's limits is in the way."""

    @override
    def allocate(self, nbytes: int) -> HostBlock:
        if nbytes <= 0:
            raise ValueError(f"nbytes must be > 0, got {nbytes}")
        address = _kernel().alloc(None, nbytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE)
        if address:
            return WindowsBlock(address, nbytes)
        code = last_error()
        left = commit().left
        if left < nbytes:
            raise NotEnoughCommitError(
                what="An allocation for expert layers",
                needed_bytes=nbytes,
                available_bytes=left,
                fix="Let Windows manage the page file, close other programs, or keep fewer layers in RAM.",
            )
        raise AllocationRefusedError(asked_bytes=nbytes, code=code, words=words(code))
