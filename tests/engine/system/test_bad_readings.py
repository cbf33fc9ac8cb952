"""T01 and T03: what drivers and systems answer when they do not know becomes "unknown", never a number."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.planning.budgets import budgets, choose_device
from app.planning.wishes import Wishes
from engine.contract.facts import GpuFacts, HardwareFacts, Reading
from engine.contract.units import GIB, MIB, reported_bytes
from engine.system.dxgi import DxgiAdapter
from engine.system.nvml import Nvml, NvmlGpu, PciAddress
from engine.system.windows_adapters import combine
from tests.support.gpu_libraries import simulated_nvml

RTX_4090_BYTES = 25_757_220_864
NOT_KNOWN_64 = 2**64 - 1  # -1 of a driver, read without a sign
PLACE = PciAddress(1, 0)


def _rtx(dedicated: int) -> DxgiAdapter:
    return DxgiAdapter("NVIDIA GeForce RTX 4090", 0x10DE, 1, dedicated, 32 * GIB)


UHD = DxgiAdapter("Intel(R) UHD Graphics 770", 0x8086, 2, 1 * GIB, 32 * GIB)


def _card(total: int | None) -> NvmlGpu:
    return NvmlGpu("NVIDIA GeForce RTX 4090", "GPU-1", "610.88", total, 0, PLACE)


@pytest.mark.parametrize(
    ("driver64", "cuda_total", "expected"),
    [
        (RTX_4090_BYTES, None, RTX_4090_BYTES),  # only the system's 64-bit field
        (0, RTX_4090_BYTES, RTX_4090_BYTES),  # only the CUDA total
        (NOT_KNOWN_64, None, None),  # -1 and nothing else
    ],
)
def test_t01_the_size_of_a_card_is_true_or_unknown(driver64: int, cuda_total: int | None, expected: int | None) -> None:
    card, igpu = combine([_rtx(driver64), UHD], [_card(cuda_total)], {}, {1: PLACE}.get)
    assert card.vram_total.value == expected
    assert igpu.vram_total.value == 1 * GIB
    facts = HardwareFacts(os="windows", ram_total=Reading.model_validate(64 * GIB), gpus=(card, igpu))
    vram = budgets(facts, Wishes(vram_reserve_bytes=0)).vram
    assert vram.bytes == (expected or 0)  # the other adapter adds nothing
    assert choose_device(facts, Wishes()) == ("cuda" if expected else "cpu")


@pytest.mark.parametrize("amount", [-1, 2**63, 2 * 1024 * GIB])
def test_t01_an_impossible_size_in_a_recorded_machine_is_unknown(amount: int) -> None:
    gpu = GpuFacts.model_validate({"name": "card", "vendor": "nvidia", "cuda": True, "vram_total": amount})
    assert gpu.vram_total.value is None
    assert "impossible" in gpu.vram_total.detail
    assert HardwareFacts(os="windows", gpus=(gpu,)).cuda_gpu is None


def test_t03_memory_of_a_process_that_the_driver_does_not_tell_is_unknown_and_not_zero() -> None:
    library, _ = simulated_nvml()
    running = [SimpleNamespace(pid=7, usedGpuMemory=None), SimpleNamespace(pid=8, usedGpuMemory=NOT_KNOWN_64)]
    library.nvmlDeviceGetComputeRunningProcesses = lambda handle: running
    library.nvmlDeviceGetGraphicsRunningProcesses = lambda handle: []
    nvml = Nvml(library)
    assert not {7, 8} & set(nvml.bytes_by_pid())
    nvml.close()


def test_t03_a_driver_that_does_not_support_the_question_leaves_the_size_unknown() -> None:
    library: Any = simulated_nvml()[0]

    def not_supported(handle: object) -> None:
        raise library.NVMLError("Not Supported")

    library.nvmlDeviceGetMemoryInfo = not_supported
    nvml = Nvml(library)
    assert all(gpu.total_bytes is None and gpu.used_bytes is None for gpu in nvml.gpus())
    nvml.close()


def test_t03_only_the_frame_buffer_counts_not_the_window_of_the_bus() -> None:
    library: Any = simulated_nvml()[0]
    library.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=24_576 * MIB, used=0)
    library.nvmlDeviceGetBAR1MemoryInfo = lambda handle: SimpleNamespace(bar1Total=32_768 * MIB, bar1Used=0)
    nvml = Nvml(library)
    assert {gpu.total_bytes for gpu in nvml.gpus()} == {24 * GIB}
    nvml.close()


@pytest.mark.parametrize("text", ["[N/A]", "[Not Supported]", "N/A", "Unknown Error", ""])
def test_t03_text_that_is_no_number_is_unknown(text: str) -> None:
    assert reported_bytes(text) is None
    reading = Reading.model_validate(text)
    assert reading.value is None
    assert reading.source is None


@pytest.mark.parametrize(
    ("text", "expected"), [("256 MB", GIB // 4), ("24564 MiB", 24_564 * MIB), ("1 GB", GIB), ("512", 512)]
)
def test_t03_the_units_of_driver_tools_are_binary(text: str, expected: int) -> None:
    assert Reading.model_validate(text).value == expected


def test_t03_shared_memory_is_never_vram() -> None:
    igpu = DxgiAdapter("Intel(R) Graphics", 0x8086, 3, 459 * MIB, round(15.6 * GIB))
    [gpu] = combine([igpu], [], {}, lambda luid: None)
    assert gpu.vram_total.value is not None
    assert round(gpu.vram_total.value / GIB, 3) == 0.448
    facts = HardwareFacts(os="windows", ram_total=Reading.model_validate(32 * GIB), gpus=(gpu,))
    vram = budgets(facts, Wishes()).vram
    assert vram.bytes == 0
    assert vram.terms[0].what == "no usable CUDA GPU"
