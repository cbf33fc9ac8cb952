"""Slots in device memory: the right bytes arrive, however few slots there are."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.banks.bank import ExpertBank
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.errors import NotEnoughVramError, PlanMismatchError
from engine.contract.plan import SimulatedGpu
from engine.experts.ring import TransferRing
from engine.experts.slots import ExpertId
from engine.experts.transfer import SlotPool
from tests.engine.experts.conftest import EXPERTS, LAYOUT, number_of
from tests.support.timed_device import TimedDevice


def _device(vram_bytes: int = 1 << 20) -> SimulatedDevice:
    return SimulatedDevice(SimulatedGpu(vram_bytes=vram_bytes, pin_bytes=1 << 20))


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
            assert torch.all(record == number_of(layer, expert))
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
    assert torch.all(record == number_of(0, 1))


RECORD = LAYOUT.record.bytes


@given(slots=st.integers(1, 8), passes=passes)
def test_no_slot_is_overwritten_while_it_is_read(
    banks: list[ExpertBank], slots: int, passes: list[tuple[int, list[int]]]
) -> None:
    device = TimedDevice(copy_bytes_s=RECORD)
    pool = SlotPool(slots, RECORD, device)
    for layer, experts in passes:
        for expert, record in zip(experts, pool.stream(banks[layer], experts), strict=True):
            assert torch.all(record == number_of(layer, expert))
            device.compute(record, 0.7)
    assert device.clashes() == []


def test_the_next_expert_is_copied_while_this_one_is_computed(banks: list[ExpertBank]) -> None:
    device = TimedDevice(copy_bytes_s=RECORD)  # a second for each copy
    pool = SlotPool(4, RECORD, device)
    for record in pool.stream(banks[0], [0, 1, 2, 3, 4, 5]):
        device.compute(record, 1.0)
    assert device.elapsed_s == pytest.approx(7.0)  # the first copy, then six computations; one after the other it is 12


def test_an_expert_that_is_needed_later_in_the_step_is_not_thrown_out_by_an_earlier_miss(
    banks: list[ExpertBank],
) -> None:
    pool = SlotPool(2, RECORD, _device())
    list(pool.stream(banks[0], [4]))
    list(pool.stream(banks[0], [5]))
    list(pool.stream(banks[0], [1, 4]))  # 4 is the least recently used
    uses = pool.table.uses[0]
    assert (uses.hits, uses.misses) == (1, 3)


def test_hits_and_misses_are_counted_for_each_layer(banks: list[ExpertBank]) -> None:
    pool = SlotPool(4, RECORD, _device())
    list(pool.stream(banks[0], [1, 2]))
    list(pool.stream(banks[1], [1]))
    list(pool.stream(banks[0], [1, 3]))
    assert [(pool.table.uses[layer].hits, pool.table.uses[layer].misses) for layer in (0, 1, 2)] == [
        (1, 3),
        (0, 1),
        (0, 0),
    ]


def _streamed(pool: SlotPool, ring: TransferRing, bank: ExpertBank, experts: list[int]) -> None:
    for expert, record in zip(experts, pool.stream_prompt(bank, experts, ring), strict=True):
        assert torch.all(record == number_of(bank.layer, expert))


def test_a_prompt_leaves_the_slots_to_decoding(banks: list[ExpertBank]) -> None:
    device = _device()
    pool, ring = SlotPool(2, RECORD, device), TransferRing(2, RECORD, device)
    list(pool.stream(banks[0], [1, 2]))
    held = pool.table.held()
    for bank in banks:
        _streamed(pool, ring, bank, list(range(EXPERTS)))
    assert pool.table.held() == held
    assert (pool.table.uses[0].prompt_hits, pool.table.uses[0].prompt_copies) == (2, 4)
    assert (pool.table.uses[0].hits, pool.table.uses[0].misses) == (0, 2)
    assert pool.table.uses[1].prompt_copies == EXPERTS


def test_a_prompt_fills_slots_that_are_free_and_they_are_the_first_to_leave(banks: list[ExpertBank]) -> None:
    device = _device()
    pool, ring = SlotPool(3, RECORD, device), TransferRing(2, RECORD, device)
    list(pool.stream(banks[0], [0]))
    _streamed(pool, ring, banks[1], [2, 3, 4, 5])
    assert set(pool.table.held()) == {ExpertId(0, 0), ExpertId(1, 2), ExpertId(1, 3)}
    list(pool.stream(banks[2], [0]))
    list(pool.stream(banks[2], [1]))
    assert set(pool.table.held()) == {ExpertId(0, 0), ExpertId(2, 0), ExpertId(2, 1)}


@given(
    slots=st.integers(1, 8),
    passes=st.lists(st.tuples(st.booleans(), passes.filter(bool).map(lambda some: some[0])), max_size=12),
)
def test_prompts_and_single_tokens_share_the_device_without_a_clash(
    banks: list[ExpertBank], slots: int, passes: list[tuple[bool, tuple[int, list[int]]]]
) -> None:
    device = TimedDevice(copy_bytes_s=RECORD)
    pool, ring = SlotPool(slots, RECORD, device), TransferRing(4, RECORD, device)
    for prompt, (layer, experts) in passes:
        bank = banks[layer]
        records = pool.stream_prompt(bank, experts, ring) if prompt else pool.stream(bank, experts)
        for expert, record in zip(experts, records, strict=True):
            assert torch.all(record == number_of(layer, expert))
            device.compute(record, 0.4)
    assert device.clashes() == []
