"""What the NVIDIA driver says of its cards, through NVML. Held only while used: an open handle keeps a GPU awake."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from engine.contract.facts import MOST_GPU_BYTES


@dataclass(frozen=True, slots=True)
class PciAddress:
    """Where a card sits."""

    bus: int
    device: int


@dataclass(frozen=True, slots=True)
class NvmlGpu:
    """One card as NVML reports it; memory in bytes, of all programs, None where the driver does not tell."""

    name: str
    uuid: str | None
    driver: str | None
    total_bytes: int | None
    used_bytes: int | None
    address: PciAddress | None


class Nvml:
    """The driver's management library. Opens at the first question; `close` lets go of it. Thread-safe.

    Without an NVIDIA driver every answer is empty: that is a fact about the machine, not an error.
    """

    def __init__(self, library: ModuleType | None = None) -> None:
        self._given = library
        self._library: Any = None
        self._busy = threading.Lock()

    def gpus(self) -> tuple[NvmlGpu, ...]:
        """All cards, in the driver's order."""
        with self._busy:
            if not self._open():
                return ()
            driver = self._ask(self._library.nvmlSystemGetDriverVersion)
            return tuple(self._gpu(handle, driver) for handle in self._handles())

    def bytes_by_pid(self) -> dict[int, int]:
        """GPU memory of each process. Empty on Windows, where only the system knows (WDDM)."""
        with self._busy:
            totals: dict[int, int] = {}
            if not self._open():
                return totals
            for handle in self._handles():
                most: dict[int, int] = {}  # one process may be listed under compute and under graphics
                for call in (
                    self._library.nvmlDeviceGetComputeRunningProcesses,
                    self._library.nvmlDeviceGetGraphicsRunningProcesses,
                ):
                    for process in self._ask(call, handle) or ():
                        used = _amount(process.usedGpuMemory)
                        if used is not None:
                            most[process.pid] = max(most.get(process.pid, 0), used)
                for pid, size in most.items():
                    totals[pid] = totals.get(pid, 0) + size
            return totals

    def close(self) -> None:
        """Let go of the driver. The next question opens it again."""
        with self._busy:
            if self._library is not None:
                with suppress(self._library.NVMLError):
                    self._library.nvmlShutdown()
                self._library = None

    def _open(self) -> bool:
        if self._library is not None:
            return True
        if self._given is None:
            import pynvml  # type: ignore[import-untyped]

            self._given = pynvml
        library: Any = self._given
        try:
            library.nvmlInit()
        except library.NVMLError:  # no driver, or one that does not answer
            return False
        self._library = library
        return True

    def _handles(self) -> list[Any]:
        count = self._ask(self._library.nvmlDeviceGetCount) or 0
        handles = (self._ask(self._library.nvmlDeviceGetHandleByIndex, index) for index in range(count))
        return [handle for handle in handles if handle is not None]

    def _gpu(self, handle: Any, driver: Any) -> NvmlGpu:
        memory = self._ask(self._library.nvmlDeviceGetMemoryInfo, handle)
        place = self._ask(self._library.nvmlDeviceGetPciInfo, handle)
        return NvmlGpu(
            name=_text(self._ask(self._library.nvmlDeviceGetName, handle)) or "NVIDIA GPU",
            uuid=_text(self._ask(self._library.nvmlDeviceGetUUID, handle)),
            driver=_text(driver),
            total_bytes=None if memory is None else _amount(memory.total) or None,
            used_bytes=None if memory is None else _amount(memory.used),
            address=None if place is None else PciAddress(int(place.bus), int(place.device)),
        )

    def _ask(self, call: Any, *arguments: Any) -> Any:
        """One question; None where this driver or card does not answer it."""
        try:
            return call(*arguments)
        except self._library.NVMLError:
            return None


def _amount(value: Any) -> int | None:
    """Bytes as the binding gives them; the driver's "not available" is -1 in 64 bits, which some releases pass on."""
    return int(value) if isinstance(value, int) and 0 <= value <= MOST_GPU_BYTES else None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):  # older releases of the binding
        return value.decode("utf-8", errors="replace")
    return None if value is None else str(value)
