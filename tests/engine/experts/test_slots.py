"""The slot table is a textbook LRU."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.experts.slots import ExpertId, SlotTable

experts = st.builds(ExpertId, st.integers(0, 2), st.integers(0, 5))


@given(slots=st.integers(1, 6), wanted=st.lists(experts, max_size=60))
def test_the_table_holds_and_evicts_what_an_ordered_dict_would(slots: int, wanted: list[ExpertId]) -> None:
    table = SlotTable(slots)
    model: OrderedDict[ExpertId, None] = OrderedDict()
    for expert in wanted:
        placed = table.acquire(expert)
        hit = expert in model
        evicted = next(iter(model)) if not hit and len(model) == slots else None
        if evicted is not None:
            del model[evicted]
        model[expert] = None
        model.move_to_end(expert)
        assert (placed.hit, placed.evicted) == (hit, evicted)
        assert list(table.held()) == list(model)
        assert len(set(table.held().values())) == len(model)  # no slot holds two experts
        assert all(0 <= slot < slots for slot in table.held().values())
    assert table.hits + table.misses == len(wanted)


@given(slots=st.integers(1, 4), wanted=st.lists(experts, min_size=1, max_size=30))
def test_a_hit_stays_in_its_slot(slots: int, wanted: list[ExpertId]) -> None:
    table = SlotTable(slots)
    for expert in wanted:
        before = table.held().get(expert)
        placed = table.acquire(expert)
        assert before is None or placed.slot == before


def test_a_forgotten_expert_gives_its_slot_to_the_next_one() -> None:
    table = SlotTable(2)
    first, second, third = ExpertId(0, 1), ExpertId(0, 2), ExpertId(0, 3)
    table.acquire(first)
    slot = table.acquire(second).slot
    table.forget(second)
    table.forget(ExpertId(9, 9))  # never held: nothing happens
    placed = table.acquire(third)
    assert (placed.slot, placed.evicted) == (slot, None)
    assert list(table.held()) == [first, third]


@given(slots=st.integers(1, 6), wanted=st.lists(st.tuples(st.sampled_from("atof"), experts), max_size=60))
def test_whatever_is_done_every_slot_is_free_or_holds_one_expert(
    slots: int, wanted: list[tuple[str, ExpertId]]
) -> None:
    table = SlotTable(slots)
    for what, expert in wanted:
        before = list(table.held())
        match what:
            case "a":
                table.acquire(expert)
                assert list(table.held())[-1] == expert
            case "t":
                assert table.touch(expert) is (expert in before)
                assert set(table.held()) == set(before)
            case "o":
                offered = table.offer(expert)
                assert (offered is not None) is (len(before) < slots and expert not in before)
                assert set(before) <= set(table.held())  # nobody is thrown out
                assert offered is None or next(iter(table.held())) == expert
            case "f":
                table.forget(expert)
        held = table.held()
        assert len(set(held.values())) == len(held) == slots - table.free
        assert table.find(expert) == held.get(expert)


def test_a_table_without_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="slots must be >= 1, got 0"):
        SlotTable(0)
