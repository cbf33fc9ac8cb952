"""The way of prompts to the GPU: the right bytes in the right order, beside the computation, refused politely."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.banks.bank import ExpertBank
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.errors import NotEnoughVramError, PlanMismatchError
from engine.contract.plan import SimulatedGpu
from engine.experts.ring import TransferRing
from tests.engine.experts.conftest import EXPERTS, LAYOUT, number_of
from tests.support.host_memory import CountingAllocator
from tests.support.timed_device import TimedDevice

RECORD = LAYOUT.record.bytes
chosen = st.lists(st.integers(0, EXPERTS - 1), unique=True).map(sorted)


def _device(pin_bytes: int = 1 << 20, vram_bytes: int = 1 << 20) -> SimulatedDevice:
    return SimulatedDevice(SimulatedGpu(vram_bytes=vram_bytes, pin_bytes=pin_bytes))


@given(
    records=st.integers(2, 12),
    steps=st.lists(st.tuples(st.integers(0, 2), chosen), max_size=8),
    gap=st.integers(0, EXPERTS),
    staged=st.booleans(),
)
def test_every_record_is_whole_and_no_half_is_overwritten_while_it_is_read(
    banks: list[ExpertBank], records: int, steps: list[tuple[int, list[int]]], gap: int, staged: bool
) -> None:
    device = TimedDevice(copy_bytes_s=RECORD)
    memory = CountingAllocator()
    ring = TransferRing(records, RECORD, device, memory if staged else None)
    for layer, experts in steps:
        stream = ring.stream(banks[layer], experts, staged=staged, gap=gap)
        for expert, record in zip(experts, stream, strict=True):
            assert torch.all(record == number_of(layer, expert))
            device.compute(record, 0.3)
    assert device.clashes() == []
    ring.close()
    assert (device.allocated, device.pinning.layers, memory.live) == ({}, 0, 0)


@pytest.mark.parametrize("staged", [False, True])
def test_one_half_is_filled_while_the_other_is_computed_from(banks: list[ExpertBank], staged: bool) -> None:
    device = TimedDevice(copy_bytes_s=RECORD)  # a second for each expert
    ring = TransferRing(2, RECORD, device, CountingAllocator() if staged else None)
    for record in ring.stream(banks[0], list(range(EXPERTS)), staged=staged):
        device.compute(record, 1.0)
    assert device.elapsed_s == pytest.approx(1.0 + EXPERTS)
    ring.close()


def test_neighbours_travel_together_and_those_nobody_chose_stay(banks: list[ExpertBank]) -> None:
    device = TimedDevice(copy_bytes_s=RECORD)
    ring = TransferRing(10, RECORD, device)
    list(ring.stream(banks[0], [0, 1, 2, 4], staged=False))
    assert [(copy.last - copy.first) // RECORD for copy in device.copies] == [3, 1]
    list(ring.stream(banks[0], [0, 1, 2, 4], staged=False, gap=1))
    assert [(copy.last - copy.first) // RECORD for copy in device.copies[2:]] == [5]


def test_half_of_a_step_given_up_leaves_the_ring_usable(banks: list[ExpertBank]) -> None:
    device = TimedDevice(copy_bytes_s=RECORD)
    ring = TransferRing(2, RECORD, device)
    stream = ring.stream(banks[0], [0, 1, 2, 3], staged=False)
    device.compute(next(stream), 5.0)
    stream.close()
    for expert, record in zip([4, 5], ring.stream(banks[1], [4, 5], staged=False), strict=True):
        assert torch.all(record == number_of(1, expert))
        device.compute(record, 1.0)
    assert device.clashes() == []


def test_both_sides_count_as_the_plan_says() -> None:
    device, memory = _device(), CountingAllocator()
    ring = TransferRing(4, RECORD, device, memory)
    assert device.allocated == {"transfer ring": 4 * RECORD}
    assert ring.nbytes == ring.staging_bytes == 4 * RECORD == device.pinning.pinned_bytes
    assert ring.stages
    assert ring.cause is None
    ring.close()
    assert (device.allocated, device.pinning.layers, memory.live) == ({}, 0, 0)


def test_a_refused_pin_leaves_the_side_in_vram_and_says_why() -> None:
    device, memory = _device(pin_bytes=RECORD), CountingAllocator()
    ring = TransferRing(2, RECORD, device, memory)
    assert not ring.stages
    assert ring.cause is not None
    assert "could not be pinned" in ring.cause
    assert (ring.staging_bytes, memory.live, device.pinning.layers) == (0, 0, 0)
    assert device.driver.last_error is None
    ring.close()
    assert device.allocated == {}


def test_a_ring_is_no_layer_for_a_driver_that_refuses_after_some_layers() -> None:
    device = SimulatedDevice(SimulatedGpu(vram_bytes=1 << 20, pin_bytes=1 << 20, refuse_pin_after_layers=1))
    ring = TransferRing(2, RECORD, device, CountingAllocator())
    device.pin(1 << 12, RECORD)
    assert ring.stages
    device.unpin(1 << 12)
    ring.close()


def test_no_room_and_no_records_are_errors_that_leave_nothing() -> None:
    device, memory = _device(vram_bytes=RECORD), CountingAllocator()
    with pytest.raises(NotEnoughVramError):
        TransferRing(2, RECORD, device, memory)
    with pytest.raises(PlanMismatchError):
        TransferRing(1, RECORD, device, memory)
    assert (device.allocated, memory.live) == ({}, 0)
