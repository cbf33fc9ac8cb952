"""Host memory on Linux: anonymous mappings, and mlock."""

import ctypes
import mmap
import os
import resource
import threading
from contextlib import suppress
from functools import cache

from typing_extensions import override

from engine.contract.errors import NotEnoughCommitError
from engine.contract.units import GIB, MIB, gib
from engine.system.posix_memory import commit_left_bytes
from engine.system.protocols import (
    AllocationRefusedError,
    HostAllocator,
    HostBlock,
    LockRefusedError,
    PageLocker,
)

MADV_POPULATE_WRITE = 23  # Linux 5.14; Python has no name for it yet
LARGE_PAGE_BYTES = 2 * MIB
CHUNK_BYTES = GIB  # one long call would keep the memory map of the whole process busy


class PosixBlock(HostBlock):
    """An anonymous private mapping that asks for huge pages, which make pinning cheaper."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._nbytes = len(mapping)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        self._buffer = memoryview(mapping)

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
        for start in range(0, self._nbytes, CHUNK_BYTES):
            length = min(CHUNK_BYTES, self._nbytes - start)
            try:
                self._mapping.madvise(MADV_POPULATE_WRITE, start, length)
            except OSError:  # an older kernel; writing back what is there touches the page without changing it
                part = self._buffer[start : start + length : mmap.PAGESIZE]
                part[:] = bytes(part)

    @override
    def free(self) -> None:
        if self._mapping.closed:
            return
        self._buffer.release()
        try:
            self._mapping.close()
        except BufferError:
            self._buffer = memoryview(self._mapping)
            raise


class PosixAllocator(HostAllocator):
    """Memory straight from the kernel, page-aligned and zeroed."""

    @override
    def allocate(self, nbytes: int) -> HostBlock:
        if nbytes <= 0:
            raise ValueError(f"nbytes must be > 0, got {nbytes}")
        try:
            mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as cause:
            left = commit_left_bytes()
            if left is not None and left < nbytes:
                raise NotEnoughCommitError(
                    what="An allocation for expert layers",
                    needed_bytes=nbytes,
                    available_bytes=left,
                    fix="Close other programs, or keep fewer layers in RAM.",
                ) from cause
            code = cause.errno if isinstance(cause, OSError) else None
            words = os.strerror(code) if code is not None else str(cause)
            raise AllocationRefusedError(asked_bytes=nbytes, code=code, words=words) from cause
        with suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
        return PosixBlock(mapping)


class PosixLocker(PageLocker):
    """mlock(2). The soft limit for locked memory is raised to the hard one first, which needs no rights."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._mlock, self._munlock = libc.mlock, libc.munlock
        for call in (self._mlock, self._munlock):
            call.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
            call.restype = ctypes.c_int
        self._busy = threading.Lock()

    @override
    def lock(self, address: int, nbytes: int) -> None:
        if nbytes <= 0:
            raise ValueError(f"nbytes must be > 0, got {nbytes}")
        with self._busy:
            limit = _raise_limit()
            for start in range(0, nbytes, CHUNK_BYTES):
                if self._mlock(address + start, min(CHUNK_BYTES, nbytes - start)) != 0:
                    code = ctypes.get_errno()
                    self._munlock(address, nbytes)
                    words = os.strerror(code)
                    if limit is not None:
                        words += f"; one process may lock {gib(limit)} (RLIMIT_MEMLOCK)"
                    raise LockRefusedError(asked_bytes=nbytes, code=code, words=words)

    @override
    def unlock(self, address: int, nbytes: int) -> None:
        with self._busy:
            self._munlock(address, nbytes)


def prefer_large_pages(address: int, nbytes: int) -> None:
    """MADV_HUGEPAGE for the whole pages of a range: first touch of 2 MiB at once instead of 512 times 4 KiB."""
    start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (address + nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE
    if length >= LARGE_PAGE_BYTES:
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)  # refused: no harm


def trim_heap() -> None:
    """malloc_trim(3): freed tensors of some MiB stay in the heap of glibc until it is told so; others know no such."""
    with suppress(AttributeError):
        _libc().malloc_trim(ctypes.c_size_t(0))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _raise_limit() -> int | None:
    """Raise the soft limit to the hard one; the bytes one process may lock, None without a limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
        except (OSError, ValueError):  # a sandbox; with the right to lock, limits do not count anyway
            return soft
    return None if hard == resource.RLIM_INFINITY else hard
