"""One picture of the graphics adapters: DXGI lists them, PDH knows their use, NVML which of them CUDA can use.

Adapters are matched by where they sit on the PCI bus, never by name or index. An adapter that NVML does not know is
not usable, whatever it calls itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from engine.contract.facts import MOST_GPU_BYTES, GpuFacts, Reading, possible
from engine.system import dxgi
from engine.system.cuda_facts import cuda_gpu, read
from engine.system.dxgi import DxgiAdapter
from engine.system.nvml import Nvml, NvmlGpu, PciAddress
from engine.system.pdh import ADAPTER_DEDICATED, ADAPTER_SHARED, Counters, GpuUse, by_adapter

NVIDIA = 0x10DE
_VENDORS: dict[int, Literal["nvidia", "amd", "intel"]] = {NVIDIA: "nvidia", 0x1002: "amd", 0x8086: "intel"}
_NO_USE = GpuUse(None, None)


def read_gpus() -> tuple[GpuFacts, ...]:
    """All adapters now. NVML is held only during the call."""
    try:
        listed = dxgi.adapters()
    except OSError:  # no DXGI: a server without graphics
        listed = ()
    nvml, counters = Nvml(), Counters((ADAPTER_DEDICATED, ADAPTER_SHARED))
    try:
        return combine(listed, nvml.gpus(), by_adapter(counters.read()), dxgi.pci_address)
    finally:
        nvml.close()
        counters.close()


def combine(
    listed: Sequence[DxgiAdapter],
    usable: Sequence[NvmlGpu],
    use: Mapping[int, GpuUse],
    address_of: Callable[[int], PciAddress | None],
) -> tuple[GpuFacts, ...]:
    """Adapters in the order of DXGI, then cards that only NVML knows (compute cards without a display driver)."""
    matched = _match(listed, usable, address_of)
    found = [_facts(adapter, matched.get(adapter.luid), use.get(adapter.luid, _NO_USE)) for adapter in listed]
    known = list(matched.values())
    return tuple(found + [cuda_gpu(gpu) for gpu in usable if gpu not in known])


def _match(
    listed: Sequence[DxgiAdapter], usable: Sequence[NvmlGpu], address_of: Callable[[int], PciAddress | None]
) -> dict[int, NvmlGpu]:
    nvidia = [adapter for adapter in listed if adapter.vendor_id == NVIDIA]
    by_address = {gpu.address: gpu for gpu in usable if gpu.address is not None}
    matched: dict[int, NvmlGpu] = {}
    for adapter in nvidia:
        address = address_of(adapter.luid)
        if address is not None and address in by_address:
            matched[adapter.luid] = by_address[address]
    if not matched and len(nvidia) == 1 and len(usable) == 1:  # one of each can only be the same card
        matched[nvidia[0].luid] = usable[0]
    return matched


def _facts(adapter: DxgiAdapter, nvml: NvmlGpu | None, use: GpuUse) -> GpuFacts:
    dedicated = possible(read(adapter.dedicated_bytes, "DXGI DedicatedVideoMemory"), MOST_GPU_BYTES)
    if nvml is not None:
        facts = cuda_gpu(nvml)
        if facts.vram_total.value is None:  # a driver that tells the size to the system only
            facts = facts.model_copy(update={"vram_total": dedicated})
    else:
        facts = GpuFacts(
            name=adapter.name,
            vendor=_VENDORS.get(adapter.vendor_id, "other"),
            vram_total=dedicated,
            vram_used=_counter(use.dedicated, r"PDH \GPU Adapter Memory\Dedicated Usage"),
        )
    return facts.model_copy(
        update={
            "luid": f"0x{adapter.luid >> 32:08X}_0x{adapter.luid & 0xFFFF_FFFF:08X}",
            "shared_limit": read(adapter.shared_limit_bytes, "DXGI SharedSystemMemory"),
            "shared_used": _counter(use.shared, r"PDH \GPU Adapter Memory\Shared Usage"),
        }
    )


def _counter(value: int | None, detail: str) -> Reading:
    return Reading(detail=f"{detail}: no such counter") if value is None else read(value, detail)
