"""Facts that hold for every card the engine can use, on any system."""

from engine.contract.facts import GpuFacts, Reading, Source
from engine.contract.units import MIB
from engine.system.nvml import NvmlGpu

CONTEXT_BYTES = Reading(
    value=600 * MIB, source=Source.ASSUMED, detail="one CUDA process before its first tensor, by rule of thumb"
)


def cuda_gpu(gpu: NvmlGpu) -> GpuFacts:
    """A card that the NVIDIA driver itself knows. Nothing else makes a card usable."""
    return GpuFacts(
        name=gpu.name,
        vendor="nvidia",
        cuda=True,
        uuid=gpu.uuid,
        driver=gpu.driver,
        vram_total=_read(gpu.total_bytes, "nvmlDeviceGetMemoryInfo total"),
        vram_used=_read(gpu.used_bytes, "nvmlDeviceGetMemoryInfo used"),
        context_bytes=CONTEXT_BYTES,
    )


def _read(value: int | None, detail: str) -> Reading:
    return Reading(detail=f"{detail}: no answer") if value is None else read(value, detail)


def read(value: int, detail: str) -> Reading:
    """A number that the system or a driver reported."""
    return Reading(value=value, source=Source.READ, detail=detail)
