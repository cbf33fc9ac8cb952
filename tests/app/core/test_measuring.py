"""Measuring children: their last word counts, whatever becomes of them."""

import sys

import pytest

from app.core.measuring import (
    Cancel,
    MeasuringCancelledError,
    MeasuringError,
    measure_rates,
    probe_goal,
    probe_pins,
)
from engine.contract.errors import ReportedError
from engine.contract.formats import WeightFormat
from engine.contract.probe import ProbeLine
from engine.contract.units import GIB
from tests.support.fake_measurement import RATES
from tests.support.machines import gpu, machine


def _argv(mode: str) -> list[str]:
    return [sys.executable, "-m", "tests.support.fake_measurement", mode]


def _probe(mode: str, seen: list[ProbeLine] | None = None, time_s: float = 60.0) -> ProbeLine:
    return probe_pins(
        need_bytes=5,
        vram_bytes=7,
        gpu_uuid="GPU-1",
        on_line=(seen if seen is not None else []).append,
        argv=_argv(mode),
        time_s=time_s,
    )


def test_every_step_is_seen_and_the_last_line_is_the_result() -> None:
    seen: list[ProbeLine] = []
    last = _probe("refused", seen)
    assert last.stopped == "refused"
    assert last is seen[-1]
    assert [line.pinned_bytes for line in seen] == [0, GIB, 2 * GIB, 2 * GIB]
    assert last.words == "--vram 7 --time-s 60.0 --need 5 --gpu GPU-1"


def test_a_probe_that_ends_without_a_last_word_leaves_a_lower_bound() -> None:
    last = _probe("ended")
    assert (last.pinned_bytes, last.stopped) == (2 * GIB, None)


def test_a_probe_that_hangs_is_ended_and_leaves_a_lower_bound() -> None:
    last = _probe("hangs", time_s=-28.0)  # the patience beyond it is 30 s
    assert (last.pinned_bytes, last.stopped) == (2 * GIB, None)


def test_what_libraries_print_is_no_result() -> None:
    assert _probe("noise").stopped == "refused"


def test_a_child_that_cannot_begin_says_why() -> None:
    with pytest.raises(ReportedError, match="It cannot begin") as refused:
        _probe("problem")
    assert refused.value.fix == "Begin otherwise."
    with pytest.raises(ReportedError, match="It cannot begin"):
        measure_rates(device="cpu", argv=_argv("problem"))


def test_a_child_that_says_nothing_is_an_error() -> None:
    with pytest.raises(MeasuringError, match="pinned memory"):
        _probe("silent")
    with pytest.raises(MeasuringError, match="speed"):
        measure_rates(device="cpu", argv=_argv("silent"))


def test_figures_come_back_as_they_were_measured() -> None:
    assert measure_rates(device="cpu", argv=_argv("rates")) == RATES


def test_the_formats_that_were_asked_for_are_measured() -> None:
    asked = [WeightFormat.BF16, WeightFormat.NVFP4]
    assert list(measure_rates(device="cpu", formats=asked, argv=_argv("rates")).cpu) == asked


def test_a_measurement_that_is_cancelled_is_over_at_once_and_teaches_nothing() -> None:
    cancel = Cancel()

    def step(line: ProbeLine) -> None:
        if line.pinned_bytes == 2 * GIB:
            cancel.cancel()

    with pytest.raises(MeasuringCancelledError):
        probe_pins(need_bytes=5, vram_bytes=7, gpu_uuid=None, on_line=step, argv=_argv("hangs"), cancel=cancel)
    with pytest.raises(MeasuringCancelledError):
        measure_rates(device="cpu", argv=_argv("rates"), cancel=cancel)


def test_a_probe_goes_as_far_as_is_needed_and_no_further_than_can_be_had() -> None:
    card = gpu(24 * GIB, shared_limit=32 * GIB)
    assert probe_goal(machine(64 * GIB, card)) == 32 * GIB
    assert probe_goal(machine(64 * GIB, card), 9 * GIB) == 10 * GIB
    assert probe_goal(machine(48 * GIB, gpu(24 * GIB))) == 24 * GIB
    assert probe_goal(machine(48 * GIB, gpu(24 * GIB), os="linux")) is None
