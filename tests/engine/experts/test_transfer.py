"""Slots in device memory: the right bytes arrive, however few slots there are."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.banks.bank import BankLayout, ExpertBank
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.errors import NotEnoughVramError, PlanMismatchError
from engine.contract.formats import WeightFormat
from engine.contract.plan import SimulatedGpu
from engine.contract.shape import ExpertShape
from engine.experts.transfer import SlotPool
from engine.system import select

EXPERTS = 6
LAYOUT = BankLayout(ExpertShape(n_experts=EXPERTS, top_k=2, width=8, inner=4), WeightFormat.FP32)


def _device(vram_bytes: int = 1 << 20) -> SimulatedDevice:
    return SimulatedDevice(SimulatedGpu(vram_bytes=vram_bytes, pin_bytes=0))


@pytest.fixture(scope="module")
def banks() -> Iterator[list[ExpertBank]]:
    """Three layers; every record is filled with its own number."""
    made = [ExpertBank(layer, LAYOUT, select.host_allocator().allocate(LAYOUT.nbytes)) for layer in range(3)]
    for bank in made:
        for expert in range(EXPERTS):
            bank.record(expert).fill_(_number(bank.layer, expert))
    yield made
    for bank in made:
        bank.free()


def _number(layer: int, expert: int) -> int:
    return 1 + layer * EXPERTS + expert


passes = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, EXPERTS - 1), min_size=1, unique=True).map(sorted)),
    max_size=12,
)


@given(slots=st.integers(1, 8), passes=passes)
def test_every_record_is_whole_while_it_is_used(
    banks: list[ExpertBank], slots: int, passes: list[tuple[int, list[int]]]
) -> None:
    device = _device()
    pool = SlotPool(slots, LAYOUT.record.bytes, device)
    for layer, experts in passes:
        for expert, record in zip(experts, pool.stream(banks[layer], experts), strict=True):
            assert torch.all(record == _number(layer, expert))
    assert pool.table.hits + pool.table.misses == sum(len(experts) for _, experts in passes)
    pool.close()
    assert device.allocated == {}


def test_an_expert_that_is_still_there_is_not_copied_again(banks: list[ExpertBank]) -> None:
    pool = SlotPool(4, LAYOUT.record.bytes, _device())
    for _ in range(3):
        list(pool.stream(banks[0], [1, 2]))
    assert (pool.table.misses, pool.table.hits) == (2, 4)


def test_slots_count_against_vram_and_are_refused_beyond_it() -> None:
    with pytest.raises(NotEnoughVramError) as refused:
        SlotPool(3, LAYOUT.record.bytes, _device(2 * LAYOUT.record.bytes))
    assert refused.value.short_bytes == LAYOUT.record.bytes


def test_no_slots_is_a_wrong_plan() -> None:
    with pytest.raises(PlanMismatchError):
        SlotPool(0, LAYOUT.record.bytes, _device())


def test_an_expert_whose_copy_failed_is_not_taken_for_present(banks: list[ExpertBank]) -> None:
    device = _device()
    pool = SlotPool(2, LAYOUT.record.bytes, device)
    device.driver.last_error = "out of memory"
    with pytest.raises(RuntimeError, match="stale error"):
        list(pool.stream(banks[0], [1]))
    device.driver.clear_error()
    (record,) = pool.stream(banks[0], [1])
    assert torch.all(record == _number(0, 1))
