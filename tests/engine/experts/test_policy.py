"""Where a step is computed and what is copied for it, from numbers alone."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.experts.policy import (
    SAFE_ROWS,
    ExpertRates,
    Step,
    StepRates,
    device_s,
    gap_experts,
    host_s,
    on_host,
    runs,
)

MB = 1_000_000
# A desktop: 9 MB experts, PCIe 4 at 25 GB/s, a CPU that reads 40 GB/s and computes 100 GFLOPS, a GPU that is faster.
RATES = StepRates(
    host=ExpertRates(expert_s=9e6 / 40e9, row_s=9.4e6 / 100e9),
    device=ExpertRates(expert_s=9e6 / 400e9, row_s=9.4e6 / 50e12),
    copy_bytes_s=25e9,
    copy_s=10e-6,
    stage_bytes_s=15e9,
)
TOKEN = Step(experts=8, rows=8, missing=8, record_bytes=9 * MB, staged=True)
CHUNK = Step(experts=128, rows=4096, missing=128, record_bytes=9 * MB, staged=True)

seconds = st.floats(1e-7, 1e-1)
rates = st.builds(
    StepRates,
    host=st.builds(ExpertRates, seconds, seconds),
    device=st.builds(ExpertRates, seconds, seconds),
    copy_bytes_s=st.floats(1e8, 1e11),
    copy_s=st.floats(1e-6, 1e-4),
    stage_bytes_s=st.floats(1e8, 1e11),
)
steps = st.builds(
    lambda experts, more, missing, size, staged: Step(experts, experts + more, min(missing, experts), size, staged),
    st.integers(1, 256),
    st.integers(0, 8192),
    st.integers(0, 256),
    st.integers(1, 20 * MB),
    st.booleans(),
)


def test_a_token_of_a_locked_layer_stays_on_the_cpu_and_a_long_prompt_goes_to_the_gpu() -> None:
    assert on_host(TOKEN, RATES)
    assert not on_host(CHUNK, RATES)


def test_a_token_of_a_pinned_layer_stays_on_the_gpu_while_the_bus_keeps_up() -> None:
    pinned = replace(TOKEN, staged=False)
    assert not on_host(replace(pinned, missing=0), RATES)
    assert not on_host(replace(pinned, missing=2), RATES)
    slow_bus = replace(RATES, copy_bytes_s=3e9)
    assert on_host(replace(pinned, missing=8), slow_bus)
    assert not on_host(replace(pinned, missing=0), slow_bus)


@given(steps)
def test_without_rates_only_crowded_experts_of_locked_layers_leave_the_cpu(step: Step) -> None:
    assert on_host(step, None) is (step.staged and step.rows < SAFE_ROWS * step.experts)


@given(steps, rates)
def test_the_choice_is_never_much_slower_than_the_other_place(step: Step, measured: StepRates) -> None:
    host, device = host_s(step, measured), device_s(step, measured)
    taken, left = (host, device) if on_host(step, measured) else (device, host)
    assert taken <= left * 1.25 * (1 + 1e-9)


@given(steps, rates)
def test_more_missing_experts_never_make_the_gpu_faster(step: Step, measured: StepRates) -> None:
    times = [device_s(replace(step, missing=missing), measured) for missing in range(step.experts + 1)]
    assert times == sorted(times)


@given(steps, rates)
def test_staging_never_makes_the_gpu_faster(step: Step, measured: StepRates) -> None:
    assert device_s(replace(step, staged=True), measured) >= device_s(replace(step, staged=False), measured)


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
