"""Graphics adapters: three tellers, one picture, and nobody is usable whom the NVIDIA driver does not know."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from engine.contract.facts import Source
from engine.contract.units import GIB, MIB
from engine.system import dxgi
from engine.system.dxgi import AdapterDescription, DxgiAdapter, Luid
from engine.system.nvml import Nvml, NvmlGpu, PciAddress
from engine.system.pdh import ADAPTER_DEDICATED, ADAPTER_SHARED, Counters, GpuUse, by_adapter, by_process
from engine.system.windows_adapters import combine
from tests.support.gpu_libraries import SimulatedPdh, simulated_nvml

RTX = DxgiAdapter("NVIDIA GeForce RTX 4060 Laptop GPU", 0x10DE, 0xD3B5, 8 * GIB - 256 * MIB, 16 * GIB)
IGPU = DxgiAdapter("Intel(R) Iris(R) Xe Graphics", 0x8086, 0xC0DE, 128 * MIB, 16 * GIB)
CARD = NvmlGpu("NVIDIA GeForce RTX 4060 Laptop GPU", "GPU-1", "610.88", 8188 * MIB, 900 * MIB, PciAddress(1, 0))


def nowhere(luid: int) -> PciAddress | None:
    return None


def test_the_card_gets_numbers_from_all_three() -> None:
    use = {RTX.luid: GpuUse(700 * MIB, 300 * MIB)}
    igpu, card = combine([IGPU, RTX], [CARD], use, {RTX.luid: PciAddress(1, 0)}.get)
    assert (igpu.vendor, igpu.cuda, igpu.vram_total.value) == ("intel", False, 128 * MIB)
    assert igpu.context_bytes.value is None
    assert (card.cuda, card.uuid, card.luid) == (True, "GPU-1", "0x00000000_0x0000D3B5")
    assert (card.vram_total.value, card.vram_used.value) == (8188 * MIB, 900 * MIB)
    assert (card.shared_limit.value, card.shared_used.value) == (16 * GIB, 300 * MIB)
    assert (card.context_bytes.value, card.context_bytes.source) == (600 * MIB, Source.ASSUMED)


def test_an_invented_nvidia_adapter_is_not_usable() -> None:
    wine = DxgiAdapter("NVIDIA GeForce GTX 470", 0x10DE, 1008, 23 * GIB, 11 * GIB)
    [gpu] = combine([wine], [], {}, nowhere)
    assert not gpu.cuda
    assert "no such counter" in gpu.vram_used.detail


def test_one_card_and_one_adapter_are_the_same_without_an_address() -> None:
    [_, card] = combine([IGPU, RTX], [CARD], {}, nowhere)
    assert card.cuda


def test_two_cards_are_told_apart_by_their_place_and_not_by_order() -> None:
    second = DxgiAdapter("NVIDIA GeForce RTX 3060", 0x10DE, 0xBEEF, 12 * GIB, 16 * GIB)
    other = NvmlGpu("NVIDIA GeForce RTX 3060", "GPU-2", "610.88", 12 * GIB, 0, PciAddress(4, 0))
    places = {RTX.luid: PciAddress(1, 0), second.luid: PciAddress(4, 0)}
    found = combine([second, RTX], [CARD, other], {}, places.get)
    assert [gpu.uuid for gpu in found] == ["GPU-2", "GPU-1"]


def test_two_cards_without_places_are_listed_but_not_mixed_up() -> None:
    second = DxgiAdapter("NVIDIA GeForce RTX 3060", 0x10DE, 0xBEEF, 12 * GIB, 16 * GIB)
    other = NvmlGpu("NVIDIA GeForce RTX 3060", "GPU-2", "610.88", 12 * GIB, 0, None)
    found = combine([second, RTX], [CARD, other], {}, nowhere)
    assert [(gpu.cuda, gpu.shared_limit.value is not None) for gpu in found] == [
        (False, True),
        (False, True),
        (True, False),
        (True, False),
    ]


def test_a_compute_card_without_a_display_driver_is_still_usable() -> None:
    [gpu] = combine([], [CARD], {}, nowhere)
    assert gpu.cuda
    assert gpu.luid is None
    assert gpu.shared_limit.value is None


def described(name: str, luid: int, flags: int = 0) -> AdapterDescription:
    text = (ctypes.c_uint16 * 128)(*name.encode("utf-16-le")[::2])
    return AdapterDescription(description=text, luid=Luid(low=luid, high=0), flags=flags, dedicated_video_memory=luid)


def test_software_remote_and_repeated_adapters_are_left_out() -> None:
    listed = [
        described("Card", 5),
        described("Microsoft Basic Render Driver", 6, dxgi.FLAG_SOFTWARE),
        described("Remote", 7, dxgi.FLAG_REMOTE),
        described("Card", 5),
        described("Other", 8),
    ]
    assert [(one.name, one.luid) for one in dxgi.hardware(iter(listed))] == [("Card", 5), ("Other", 8)]


def test_com_tables_are_called_by_slot_and_every_object_is_released() -> None:
    released: list[str] = []
    keep: list[Any] = []

    def com_object(**slots: Callable[..., int]) -> int:
        table = (ctypes.c_void_p * 13)()
        for slot, call in slots.items():
            arity = {2: 0, 10: 1, 12: 2}[int(slot[1:])]
            kinds = (ctypes.c_uint32, ctypes.c_void_p)[2 - arity :]
            function = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, *kinds)(call)
            table[int(slot[1:])] = ctypes.cast(function, ctypes.c_void_p).value
            keep.append(function)
        pointer = ctypes.c_void_p(ctypes.addressof(table))
        keep.extend((table, pointer))
        return ctypes.addressof(pointer)

    def describe(_this: int, target: int) -> int:
        AdapterDescription.from_address(target).flags = 0
        AdapterDescription.from_address(target).shared_system_memory = 16 * GIB
        return 0

    def release(_this: int) -> int:
        released.append("adapter")
        return 0

    adapter = com_object(_2=release, _10=describe)

    def enumerate_adapters(_this: int, index: int, target: int) -> int:
        if index:
            return dxgi.DXGI_ERROR_NOT_FOUND
        ctypes.c_void_p.from_address(target).value = adapter
        return 0

    factory = com_object(_12=enumerate_adapters)
    assert [one.shared_system_memory for one in dxgi.descriptions(factory)] == [16 * GIB]
    assert released == ["adapter"]


LUID = "luid_0x00000000_0x0000D3B5"


def test_counters_are_read_by_adapter_parts_added_up_and_invalid_ones_left_out() -> None:
    library = SimulatedPdh(
        {
            ADAPTER_DEDICATED: {f"{LUID}_phys_0": (0, 5 * GIB), f"{LUID}_phys_1": (1, GIB), "luid_broken": (0, 1)},
            ADAPTER_SHARED: {f"{LUID}_phys_0": (0xC000_0BBA, 9), "luid_0x00000001_0x00000002_phys_0": (0, 3)},
        },
    )
    counters = Counters((ADAPTER_DEDICATED, ADAPTER_SHARED), lambda: library)
    assert by_adapter(counters.read()) == {
        0xD3B5: GpuUse(6 * GIB, None),
        0x1_0000_0002: GpuUse(None, 3),
    }
    counters.close()
    assert library.open_queries == 0
    assert counters.read()
    counters.close()


def test_an_instance_that_appears_in_between_is_no_failure() -> None:
    counters = Counters((ADAPTER_SHARED,), lambda: SimulatedPdh({ADAPTER_SHARED: {LUID: (0, 4)}}, grows=1))
    assert counters.read() == {ADAPTER_SHARED: {LUID: 4}}


def test_a_missing_counter_set_and_a_counter_without_instances_are_different_things() -> None:
    assert Counters((ADAPTER_SHARED,), lambda: SimulatedPdh({})).read() == {}
    assert Counters((ADAPTER_SHARED,), lambda: SimulatedPdh({ADAPTER_SHARED: {}})).read() == {ADAPTER_SHARED: {}}


def test_a_system_without_pdh_knows_nothing() -> None:
    def missing() -> None:
        raise OSError("no pdh.dll")

    assert Counters((ADAPTER_SHARED,), missing).read() == {}


def test_process_memory_is_added_over_adapters_and_bounded_by_them() -> None:
    instances = {
        f"pid_4188_{LUID}_phys_0": 6 * GIB,
        "pid_4188_luid_0x00000000_0x0000C0DE_phys_0": 100 * MIB,
        f"pid_12_{LUID}_phys_0": 17 * GIB * GIB,  # after sleep
    }
    assert by_process(instances, {0xD3B5: 8 * GIB}) == {4188: 6 * GIB + 100 * MIB, 12: 8 * GIB}


def test_nvml_is_opened_when_asked_and_let_go_when_closed() -> None:
    library, journal = simulated_nvml()
    nvml = Nvml(library)
    assert journal == []
    assert nvml.gpus() == (NvmlGpu("NVIDIA GeForce RTX 4090", "GPU-4", "610.88", 24564 * MIB, GIB, None),)
    assert nvml.bytes_by_pid() == {1: 5}  # None under WDDM is not 0
    nvml.close()
    nvml.close()
    assert journal == ["open", "close"]


@pytest.mark.parametrize("ask", [Nvml.gpus, Nvml.bytes_by_pid], ids=["cards", "processes"])
def test_without_an_nvidia_driver_there_is_nothing_to_tell(ask: Callable[[Nvml], object]) -> None:
    library, journal = simulated_nvml(present=False)
    assert not ask(Nvml(library))
    assert journal == []
