"""pdh.dll and the NVML binding as far as the system shelf uses them, with chosen answers."""

import ctypes
from types import SimpleNamespace
from typing import Any

from engine.contract.units import GIB, MIB
from engine.system import pdh


class SimulatedPdh:
    """pdh.dll with chosen instances; a counter that is not in `instances` does not exist."""

    def __init__(self, instances: dict[str, dict[str, tuple[int, int]]], *, grows: int = 0) -> None:
        self._instances = instances
        self._paths: list[str] = []
        self._grows = grows
        self._keep: list[Any] = []
        self.open_queries = 0

    def open(self, _source: None, _user: int, query: Any) -> int:
        query._obj.value = 77
        self.open_queries += 1
        return 0

    def close(self, _query: Any) -> int:
        self.open_queries -= 1
        return 0

    def add(self, _query: Any, path: str, _user: int, counter: Any) -> int:
        if path not in self._instances:
            return 0xC000_0BB9
        self._paths.append(path)
        counter._obj.value = len(self._paths)
        return 0

    def collect(self, _query: Any) -> int:
        return 0

    def values(self, counter: Any, kind: int, size: Any, count: Any, buffer: Any) -> int:
        assert kind == pdh.PDH_FMT_LARGE
        found = self._instances[self._paths[counter.value - 1]]
        if not found:
            return 0x8000_07D1  # no instance
        needed = ctypes.sizeof(pdh.Item) * len(found)
        if buffer is None or self._grows:
            self._grows -= buffer is not None
            size._obj.value = needed
            return pdh.PDH_MORE_DATA
        items = (pdh.Item * len(found)).from_buffer(buffer)
        for item, (name, (status, value)) in zip(items, found.items(), strict=True):
            item.name, item.status, item.value = name, status, value
        self._keep.append(items)
        count._obj.value = len(found)
        return 0


class NVMLError(Exception):
    """The binding's base error."""


def simulated_nvml(*, present: bool = True) -> tuple[Any, list[str]]:
    """The binding with one card whose temperature of answers is mixed: no graphics list, one process without memory."""
    journal: list[str] = []

    def refuse(*_arguments: Any) -> None:
        raise NVMLError

    library = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=(lambda: journal.append("open")) if present else refuse,
        nvmlShutdown=lambda: journal.append("close"),
        nvmlSystemGetDriverVersion=lambda: b"610.88",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda _handle: "NVIDIA GeForce RTX 4090",
        nvmlDeviceGetUUID=lambda _handle: "GPU-4",
        nvmlDeviceGetMemoryInfo=lambda _handle: SimpleNamespace(total=24564 * MIB, used=GIB),
        nvmlDeviceGetPciInfo=refuse,
        nvmlDeviceGetComputeRunningProcesses=lambda _handle: [
            SimpleNamespace(pid=1, usedGpuMemory=5),
            SimpleNamespace(pid=2, usedGpuMemory=None),
        ],
        nvmlDeviceGetGraphicsRunningProcesses=refuse,
    )
    return library, journal
