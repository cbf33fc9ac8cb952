"""How full memory is on Windows. Totals are read once; use comes from counters that do not wake the GPU."""

from collections.abc import Callable, Sequence

from typing_extensions import override

from engine.contract.facts import GpuFacts
from engine.system import windows_memory
from engine.system.nvml import Nvml
from engine.system.pdh import ADAPTER_DEDICATED, ADAPTER_SHARED, Counters, GpuUse, by_adapter
from engine.system.protocols import LiveMemory, MemoryUse
from engine.system.windows_adapters import read_gpus
from engine.system.windows_memory import Ram


class WindowsLiveMemory(LiveMemory):
    """RAM from GlobalMemoryStatusEx, the CUDA card from PDH, or from NVML where the counters are missing."""

    def __init__(
        self,
        look: Callable[[], Sequence[GpuFacts]] = read_gpus,
        ram: Callable[[], Ram] = windows_memory.ram,
        counters: Counters | None = None,
        nvml: Nvml | None = None,
    ) -> None:
        self._look = look
        self._ram = ram
        self._counters = counters or Counters((ADAPTER_DEDICATED, ADAPTER_SHARED))
        self._nvml = nvml or Nvml()
        self._card: GpuFacts | None = None
        self._looked = False

    @override
    def read(self) -> MemoryUse:
        if not self._looked:
            usable = [gpu for gpu in self._look() if gpu.cuda]
            self._card = max(usable, key=lambda gpu: gpu.vram_total.value or 0, default=None)
            self._looked = True
        memory = self._ram()
        ram_used = memory.total - memory.available
        if self._card is None:
            return MemoryUse(ram_used=ram_used, ram_total=memory.total)
        use = self._use(self._card)
        total = self._card.vram_total.value
        return MemoryUse(
            ram_used=ram_used,
            ram_total=memory.total,
            vram_used=_at_most(use.dedicated, total),
            vram_total=total,
            shared_used=_at_most(use.shared, self._card.shared_limit.value),
            shared_limit=self._card.shared_limit.value,
        )

    @override
    def close(self) -> None:
        self._counters.close()
        self._nvml.close()
        self._looked = self._card is not None  # a card that was absent may be there next time

    def _use(self, card: GpuFacts) -> GpuUse:
        by_luid = by_adapter(self._counters.read())
        use = GpuUse(None, None)
        if card.luid is not None:
            high, low = card.luid.split("_")
            use = by_luid.get(int(high, 16) << 32 | int(low, 16), use)
        if use.dedicated is not None:
            return use
        same = (gpu.used_bytes for gpu in self._nvml.gpus() if gpu.uuid == card.uuid)
        return GpuUse(next(same, None), use.shared)


def _at_most(value: int | None, limit: int | None) -> int | None:
    """The counters may show absurd values after the machine slept."""
    return value if value is None or limit is None else min(value, limit)
