"""From wishes to plan, stops and what is drawn where there is no plan."""

from pathlib import Path

import pytest

from app.planning.wishes import Wishes
from app.ui.split_plan import Question, answer, gain, largest_context, left_over
from engine.contract.facts import UNKNOWN, Reading, Source
from engine.contract.plan import Tier
from engine.contract.units import GIB
from engine.system.recorded import RecordedMachine
from tests.app.ui.test_notices import an_orphan
from tests.support.model_configs import QWEN3_30B, shape_of

MACHINES = Path(__file__).parents[2] / "machines"
ROOMY, MIDDLE, SMALL = "desktop_192gb_rtx5090", "desktop_63gb_rtx4090", "desktop_32gb_rtx3080ti"


def question(folder: Path, machine: str, **wishes: object) -> Question:
    facts = RecordedMachine(MACHINES / f"{machine}.json").read()
    return Question(shape_of(QWEN3_30B, folder), facts, Wishes.model_validate(wishes), folder)


def test_wishes_that_fit_have_a_plan_and_no_problem(tmp_path: Path) -> None:
    found = answer(question(tmp_path, MIDDLE))
    assert found.plan is not None
    assert found.problem is None
    assert found.drawn is None
    assert len(found.stops.stops) > 1
    assert found.quota is not None and not found.quota.assumed


def test_a_step_of_the_slider_takes_over_its_stops_and_nothing_else_does(tmp_path: Path) -> None:
    asked = question(tmp_path, MIDDLE)
    first = answer(asked)
    stop = first.stops.stops[-1].context_tokens
    moved = answer(asked.with_wishes(context_tokens=stop), first)
    assert moved.stops is first.stops
    assert moved == answer(asked.with_wishes(context_tokens=stop)), "the same as planned from nothing"
    for other in (
        asked.with_wishes(pinned_layers=1),
        Question(asked.shape, asked.facts.model_copy(), asked.wishes, tmp_path),
        question(tmp_path, ROOMY),
    ):
        assert answer(other, first) == answer(other)
        assert answer(other, first).stops is not first.stops


def test_a_wish_that_does_not_fit_is_drawn_with_pageable_layers(tmp_path: Path) -> None:
    asked = question(tmp_path, MIDDLE)
    used = Reading(value=int(30 * GIB), source=Source.READ)
    tight = Question(asked.shape, asked.facts.model_copy(update={"ram_available": used}), asked.wishes, tmp_path)
    found = answer(tight)
    assert found.plan is None
    assert found.problem is not None and found.problem.kind == "ram"
    assert found.drawn is not None and found.drawn.layers_in(Tier.PAGEABLE) > 0


def test_a_model_that_fits_nowhere_is_still_drawn(tmp_path: Path) -> None:
    found = answer(question(tmp_path, SMALL))
    assert found.plan is None
    assert found.stops.stops == ()
    assert found.drawn is not None
    assert len(found.drawn.tiers) == 48


def test_the_largest_context_is_the_last_stop_that_keeps_the_other_wishes(tmp_path: Path) -> None:
    asked = question(tmp_path, MIDDLE)
    stops = answer(asked).stops
    assert largest_context(asked, stops) == stops.stops[-1].context_tokens
    kept = question(tmp_path, MIDDLE, vram_layers=stops.stops[0].vram_layers)
    largest = largest_context(kept, stops)
    assert largest is not None
    assert largest < stops.stops[-1].context_tokens
    assert answer(kept.with_wishes(context_tokens=largest)).plan is not None


def test_contradicting_wishes_are_a_problem_not_an_escape(tmp_path: Path) -> None:
    found = answer(question(tmp_path, MIDDLE, forced={999: "vram"}))
    assert found.plan is None
    assert found.problem is not None


def test_what_ending_a_process_would_win_is_counted_in_layers(tmp_path: Path) -> None:
    asked = question(tmp_path, ROOMY)
    gpu = asked.facts.gpus[0]
    held = Reading(value=(gpu.vram_used.value or 0) + int(14.2 * GIB), source=Source.READ)
    facts = asked.facts.model_copy(update={"gpus": (gpu.model_copy(update={"vram_used": held}), *asked.facts.gpus[1:])})
    crowded = Question(asked.shape, facts, asked.wishes.model_copy(update={"context_tokens": 8192}), tmp_path)
    now, then = crowded.plan(), Question(asked.shape, asked.facts, crowded.wishes, tmp_path).plan()
    more = then.layers_in(Tier.VRAM) - now.layers_in(Tier.VRAM)
    assert more > 5
    assert gain(crowded, [an_orphan()]).startswith(f"Without it, {more} more layers fit in VRAM")


def test_pins_that_come_back_with_the_end_of_a_process_are_won(tmp_path: Path) -> None:
    asked = question(tmp_path, MIDDLE)
    limit, held = (asked.facts.ram_total.value or 0) // 2, 20 * GIB
    pool = {"shared_limit": _read(limit), "shared_used": _read(held)}
    facts = asked.facts.model_copy(
        update={
            "gpus": (asked.facts.gpus[0].model_copy(update=pool), *asked.facts.gpus[1:]),
            "pin_measured": UNKNOWN,
            "pin_probed": _read(limit),
        }
    )
    pins = an_orphan().model_copy(update={"gpu_bytes": 0, "rss_bytes": 0, "gpu_shared_bytes": held})
    won = gain(Question(asked.shape, facts, asked.wishes, tmp_path), [pins])
    assert won.endswith("more layers can be pinned.")


def _read(amount_bytes: int) -> Reading:
    return Reading(value=amount_bytes, source=Source.READ)


def test_a_process_that_holds_nothing_wins_nothing(tmp_path: Path) -> None:
    empty = an_orphan().model_copy(update={"gpu_bytes": None, "rss_bytes": None})
    assert gain(question(tmp_path, ROOMY), [empty]) == ""


@pytest.mark.parametrize("confidence", ["possible", "uncertain"])
def test_memory_of_processes_that_may_be_somebody_elses_is_not_counted_as_ours(confidence: str) -> None:
    other = an_orphan().model_copy(update={"confidence": confidence})
    held = left_over([an_orphan(), other])
    assert held.vram_bytes == int(14.2 * GIB)
    assert held.ram_bytes == int(28.9 * GIB)
