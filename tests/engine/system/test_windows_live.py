"""The bars on Windows: the CUDA card by its LUID, bounded by what it has, and without waking it."""

from engine.contract.facts import GpuFacts, Reading, Source
from engine.contract.units import GIB, MIB
from engine.system.nvml import Nvml
from engine.system.pdh import ADAPTER_DEDICATED, ADAPTER_SHARED, Counters
from engine.system.protocols import MemoryUse
from engine.system.windows_live import WindowsLiveMemory
from engine.system.windows_memory import Ram
from tests.support.gpu_libraries import SimulatedPdh, simulated_nvml

IGPU = GpuFacts(name="Intel", vendor="intel", luid="0x00000000_0x0000C0DE")
CARD = GpuFacts(
    name="NVIDIA GeForce RTX 4090",
    vendor="nvidia",
    cuda=True,
    uuid="GPU-4",
    luid="0x00000000_0x0000D3B5",
    vram_total=Reading(value=24564 * MIB, source=Source.READ),
    shared_limit=Reading(value=16 * GIB, source=Source.READ),
)
CARD_PART = "luid_0x00000000_0x0000D3B5_phys_0"
IGPU_PART = "luid_0x00000000_0x0000C0DE_phys_0"


def live(dedicated: dict[str, int] | None, gpus: list[GpuFacts]) -> tuple[WindowsLiveMemory, list[str], list[int]]:
    """Live memory over simulated libraries, NVML's journal, and how often the adapters were looked up."""
    looks: list[int] = []
    library, journal = simulated_nvml()
    instances = {ADAPTER_SHARED: {CARD_PART: (0, 3 * GIB), IGPU_PART: (0, 1)}}
    if dedicated is not None:
        instances[ADAPTER_DEDICATED] = {name: (0, value) for name, value in dedicated.items()}

    def look() -> list[GpuFacts]:
        looks.append(1)
        return gpus

    counters = Counters((ADAPTER_DEDICATED, ADAPTER_SHARED), lambda: SimulatedPdh(instances))
    memory = WindowsLiveMemory(look, lambda: Ram(64 * GIB, 50 * GIB), counters, Nvml(library))
    return memory, journal, looks


def test_use_is_that_of_the_cuda_card_and_nvml_is_left_alone() -> None:
    memory, journal, looks = live({CARD_PART: 5 * GIB, IGPU_PART: 100}, [IGPU, CARD])
    expected = MemoryUse(14 * GIB, 64 * GIB, 5 * GIB, 24564 * MIB, 3 * GIB, 16 * GIB)
    assert memory.read() == memory.read() == expected
    memory.close()
    assert memory.read() == expected
    memory.close()
    assert journal == []
    assert looks == [1]


def test_absurd_counters_after_sleep_are_bounded_by_the_card() -> None:
    memory, _, _ = live({CARD_PART: 1 << 60}, [CARD])
    assert memory.read().vram_used == 24564 * MIB
    memory.close()


def test_without_the_counter_nvml_is_asked_until_it_is_closed() -> None:
    memory, journal, _ = live(None, [CARD])
    use = memory.read()
    assert (use.vram_used, use.shared_used) == (GIB, 3 * GIB)
    memory.read()
    memory.close()
    assert journal == ["open", "close"]


def test_without_a_cuda_card_only_ram_is_shown_and_a_card_may_come_later() -> None:
    gpus = [IGPU]
    memory, _, looks = live({}, gpus)
    assert memory.read() == memory.read() == MemoryUse(ram_used=14 * GIB, ram_total=64 * GIB)
    assert looks == [1]
    memory.close()
    gpus.append(CARD)
    assert memory.read().vram_total == 24564 * MIB
    memory.close()
