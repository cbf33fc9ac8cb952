"""What a step costs and where it is computed, from numbers alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract.steps import SAFE_ROWS, ExpertRates, Step, StepRates, chosen_s, device_s, host_s, on_host

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
    assert chosen_s(step, measured) == taken


@given(steps, rates)
def test_more_missing_experts_never_make_the_gpu_faster(step: Step, measured: StepRates) -> None:
    times = [device_s(replace(step, missing=missing), measured) for missing in range(int(step.experts) + 1)]
    assert times == sorted(times)


@given(steps, rates)
def test_staging_never_makes_the_gpu_faster(step: Step, measured: StepRates) -> None:
    assert device_s(replace(step, staged=True), measured) >= device_s(replace(step, staged=False), measured)


def test_the_first_expert_arrives_before_anything_is_computed_and_the_slowest_part_decides_from_then_on() -> None:
    each, stage = 9e6 / 25e9 + 10e-6, 9e6 / 15e9  # 370 and 600 µs
    assert device_s(TOKEN, RATES) == pytest.approx(each + 8 * stage)  # staging; computing would take 182 µs
    pinned = replace(TOKEN, staged=False)
    assert device_s(pinned, RATES) == pytest.approx(8 * each)
    assert device_s(replace(pinned, missing=1), RATES) == pytest.approx(each + 8 * (22.5e-6 + 9.4e6 / 50e12))
    assert host_s(TOKEN, RATES) == pytest.approx(8 * (225e-6 + 94e-6))


def test_half_an_expected_copy_costs_half_a_copy() -> None:
    slow_bus = replace(RATES, copy_bytes_s=1e9)
    none, half, one = (device_s(replace(TOKEN, staged=False, missing=many), slow_bus) for many in (0, 0.5, 1))
    assert half - none == pytest.approx(one - half) == pytest.approx((9e-3 + 10e-6) / 2)
