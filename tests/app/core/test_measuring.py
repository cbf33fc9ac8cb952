"""Measuring children: their last word counts, whatever becomes of them."""

import sys

import pytest

from app.core.measuring import MeasuringError, measure_rates, probe_pins
from engine.contract.errors import ReportedError
from engine.contract.probe import ProbeLine
from engine.contract.units import GIB
from tests.support.fake_measurement import RATES


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
