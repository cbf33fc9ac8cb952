"""Which copies bring the wanted experts, from numbers alone."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.steps import ExpertRates, StepRates
from engine.experts.copies import gap_experts, runs

MB = 1_000_000
ANY = ExpertRates(expert_s=1e-4, row_s=1e-6)
RATES = StepRates(host=ANY, device=ANY, copy_bytes_s=25e9, copy_s=10e-6, stage_bytes_s=15e9)


def test_small_unwanted_experts_are_copied_along_where_that_is_cheaper_than_another_copy() -> None:
    assert gap_experts(9 * MB, RATES, staged=False) == 0  # 360 µs against 10
    assert gap_experts(50_000, RATES, staged=False) == 5  # 2 µs each
    assert gap_experts(50_000, RATES, staged=True) < 5
    assert gap_experts(50_000, None, staged=False) == 0


experts = st.lists(st.integers(0, 127), unique=True).map(sorted)


@given(experts, st.integers(0, 130), st.integers(1, 130))
def test_copies_bring_every_expert_once_and_little_else(wanted: list[int], gap: int, most: int) -> None:
    found = list(runs(wanted, gap, most))
    brought = [expert for first, count in found for expert in range(first, first + count)]
    assert brought == sorted(set(brought))
    assert set(wanted) <= set(brought)
    for first, count in found:
        assert 1 <= count <= most
        inside = [expert for expert in wanted if first <= expert < first + count]
        assert inside[0] == first
        assert inside[-1] == first + count - 1
        assert all(after - before - 1 <= gap for before, after in pairwise(inside))
    if gap == 0:
        assert brought == wanted


def test_a_whole_layer_is_one_copy_after_the_other() -> None:
    assert list(runs(range(128), 0, 48)) == [(0, 48), (48, 48), (96, 32)]
    assert list(runs(range(128), 0, 128)) == [(0, 128)]


def test_a_copy_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="most must be >= 1"):
        list(runs([1], 0, 0))
