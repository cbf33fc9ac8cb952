"""GPU memory of every process and adapter, from the performance counters of Windows (PDH).

The counters do not wake a sleeping GPU. They may be missing (old drivers, damaged counters): then nothing is known.
"""

import ctypes
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.system import dxgi
from engine.system.windows_dll import function, system_dll

ADAPTER_DEDICATED = r"\GPU Adapter Memory(*)\Dedicated Usage"
ADAPTER_SHARED = r"\GPU Adapter Memory(*)\Shared Usage"
PROCESS_DEDICATED = r"\GPU Process Memory(*)\Dedicated Usage"
PROCESS_SHARED = r"\GPU Process Memory(*)\Shared Usage"
PDH_FMT_LARGE = 0x400
PDH_MORE_DATA = 0x8000_07D2
VALID = (0, 1)  # PDH_CSTATUS_VALID_DATA, PDH_CSTATUS_NEW_DATA
TRIES = 3  # an instance may appear between asking for the size and asking for the values

_PROCESS = re.compile(r"pid_(\d+)_luid_0x([0-9A-Fa-f]+)_0x([0-9A-Fa-f]+)")
_ADAPTER = re.compile(r"luid_0x([0-9A-Fa-f]+)_0x([0-9A-Fa-f]+)")


class Item(ctypes.Structure):
    """PDH_FMT_COUNTERVALUE_ITEM_W with a 64-bit value."""

    _fields_ = (
        ("name", ctypes.c_wchar_p),
        ("status", ctypes.c_uint32),
        ("value", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Bytes in use, of an adapter by all programs or of a process on all adapters; None: the counter is missing."""

    dedicated: int | None
    shared: int | None


class PdhCalls:
    """The exported functions of pdh.dll."""

    def __init__(self) -> None:
        dll = system_dll("pdh.dll")
        status, number, pointer, text = ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_wchar_p
        self.open = function(dll, "PdhOpenQueryW", status, text, ctypes.c_size_t, pointer)
        self.add = function(dll, "PdhAddEnglishCounterW", status, pointer, text, ctypes.c_size_t, pointer)
        self.collect = function(dll, "PdhCollectQueryData", status, pointer)
        self.values = function(dll, "PdhGetFormattedCounterArrayW", status, pointer, number, pointer, pointer, pointer)
        self.close = function(dll, "PdhCloseQuery", status, pointer)


class Counters:
    """An open query over some wildcard paths, asked again and again. Thread-safe."""

    def __init__(self, paths: tuple[str, ...], calls: Callable[[], Any] = PdhCalls) -> None:
        self._paths = paths
        self._load = calls
        self._calls: Any = None
        self._query = ctypes.c_void_p()
        self._counters: dict[str, ctypes.c_void_p] = {}
        self._busy = threading.Lock()

    def read(self) -> dict[str, dict[str, int]]:
        """Values by path and instance; a path whose counter is missing is not in the answer."""
        with self._busy:
            if not self._open() or self._calls.collect(self._query) != 0:
                return {}
            found = {path: self._values(counter) for path, counter in self._counters.items()}
            return {path: values for path, values in found.items() if values is not None}

    def close(self) -> None:
        """Let go of the query; the next `read` opens it again."""
        with self._busy:
            if self._query.value:
                self._calls.close(self._query)
            self._query = ctypes.c_void_p()
            self._counters = {}

    def _open(self) -> bool:
        if self._query.value:
            return bool(self._counters)
        try:
            self._calls = self._calls or self._load()
        except OSError:
            return False
        if self._calls.open(None, 0, ctypes.byref(self._query)) != 0:
            return False
        for path in self._paths:
            counter = ctypes.c_void_p()
            if self._calls.add(self._query, path, 0, ctypes.byref(counter)) == 0:
                self._counters[path] = counter
        return bool(self._counters)

    def _values(self, counter: ctypes.c_void_p) -> dict[str, int] | None:
        """All instances of one counter; empty if there are none now, None if PDH does not answer."""
        for _ in range(TRIES):
            size, count = ctypes.c_uint32(), ctypes.c_uint32()
            status = self._ask(counter, size, count, None)
            if status != PDH_MORE_DATA:
                return {}  # no instance: nobody uses a GPU
            buffer = ctypes.create_string_buffer(size.value)
            if self._ask(counter, size, count, buffer) == 0:
                items = ctypes.cast(buffer, ctypes.POINTER(Item))
                return {items[i].name: items[i].value for i in range(count.value) if items[i].status in VALID}
        return None

    def _ask(self, counter: ctypes.c_void_p, size: ctypes.c_uint32, count: ctypes.c_uint32, buffer: Any) -> int:
        return int(self._calls.values(counter, PDH_FMT_LARGE, ctypes.byref(size), ctypes.byref(count), buffer))


def by_adapter(values: Mapping[str, Mapping[str, int]]) -> dict[int, GpuUse]:
    """Use by LUID, the physical parts of one adapter added up."""
    dedicated = _by_luid(values.get(ADAPTER_DEDICATED, {}))
    shared = _by_luid(values.get(ADAPTER_SHARED, {}))
    return {luid: GpuUse(dedicated.get(luid), shared.get(luid)) for luid in dedicated | shared}


def by_process(instances: Mapping[str, int], limits: Mapping[int, int]) -> dict[int, int]:
    """VRAM by pid, all adapters added up.

    Args:
        limits: VRAM by LUID. After the machine slept the counters may show more than an adapter has.
    """
    totals: dict[int, int] = {}
    for name, used in instances.items():
        if match := _PROCESS.search(name):
            limit = limits.get(_luid(match[2], match[3]), used)
            totals[int(match[1])] = totals.get(int(match[1]), 0) + max(min(used, limit), 0)
    return totals


def _by_luid(instances: Mapping[str, int]) -> dict[int, int]:
    totals: dict[int, int] = {}
    for name, used in instances.items():
        if match := _ADAPTER.search(name):
            luid = _luid(match[1], match[2])
            totals[luid] = totals.get(luid, 0) + max(used, 0)
    return totals


def _luid(high: str, low: str) -> int:
    return int(high, 16) << 32 | int(low, 16)


@cache
def _process_counters() -> Counters:
    return Counters((PROCESS_DEDICATED, PROCESS_SHARED))


def gpu_use_by_pid() -> dict[int, GpuUse]:
    """What each process holds of VRAM and of RAM for a GPU; the query stays open between calls, and holds no driver."""
    values = _process_counters().read()
    dedicated = by_process(values.get(PROCESS_DEDICATED, {}), _limits())
    shared = by_process(values.get(PROCESS_SHARED, {}), {})
    return {pid: GpuUse(dedicated.get(pid), shared.get(pid)) for pid in dedicated | shared}


def gpu_bytes_by_pid() -> dict[int, int]:
    """VRAM that each process holds now."""
    return {pid: use.dedicated for pid, use in gpu_use_by_pid().items() if use.dedicated is not None}


@cache
def _limits() -> dict[int, int]:
    try:
        return {adapter.luid: adapter.dedicated_bytes for adapter in dxgi.adapters()}
    except OSError:  # no DXGI, so nothing to compare with
        return {}
