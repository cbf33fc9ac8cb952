"""Speed: sums of measured figures by hand, corrected by runs, never told without either."""

import math
from typing import Any

import pytest

from app.planning.figures import Figures
from app.planning.planner import make_plan
from app.planning.speed import PROMPT_SPREAD, Range, Speed, SpeedRun, predict, run_of, speed_line
from app.planning.wishes import Wishes
from engine.contract.facts import HardwareFacts
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, SimulatedGpu
from engine.contract.rates import KernelRates
from engine.contract.units import GIB
from tests.support.figures import EVEN, RATES, WITH_GPU
from tests.support.machines import gib_bytes, gpu, machine, measured

DESKTOP = machine(gib_bytes(64), gpu(gib_bytes(12)), pin_measured=measured(GIB))


def _plan(facts: HardwareFacts = machine(gib_bytes(64)), **wishes: Any) -> MemoryPlan:  # noqa: B008 - frozen
    return make_plan(EVEN, facts, Wishes(**{"context_tokens": 256, **wishes}), model_dir="x")


def _run(plan: MemoryPlan, decode_tok_s: float, prefill_tok_s: float | None = None) -> SpeedRun:
    found = run_of(plan, prompt_tokens=500, answer_tokens=100, decode_tok_s=decode_tok_s, prefill_tok_s=prefill_tok_s)
    assert found is not None
    return found


def test_nothing_is_said_before_something_was_measured() -> None:
    assert predict(_plan(), None) is None
    assert speed_line(None) == "Speed: not measured on this PC"


def test_figures_are_believed_to_some_extent() -> None:
    plan = _plan()
    speed, figures = predict(plan, RATES), Figures(plan, RATES)
    assert speed is not None and speed.prefill_tok_s is not None
    assert speed.decode_tok_s.slow == pytest.approx(1 / figures.token_s(slowest=True) / 1.15)
    assert speed.decode_tok_s.fast == pytest.approx(1 / figures.token_s(slowest=False) * 1.15)
    assert speed.prompt_tokens == 255, "the longest that leaves room for an answer"
    assert speed.prefill_tok_s.slow == pytest.approx(255 / figures.prompt_s(255, slowest=True) / PROMPT_SPREAD)
    assert speed.prefill_tok_s.fast == pytest.approx(255 / figures.prompt_s(255, slowest=False) * PROMPT_SPREAD)
    assert speed.basis == speed.prompt_basis == "figures of this PC"


def test_waiting_is_told_for_a_long_prompt_where_the_context_has_room_for_one() -> None:
    speed = predict(_plan(context_tokens=4096 + 256), RATES)
    assert speed is not None and speed.ttft_s is not None and speed.prefill_tok_s is not None
    assert speed.prompt_tokens == 4096
    assert speed.ttft_s.slow == pytest.approx(4096 / speed.prefill_tok_s.slow)
    assert speed.ttft_s.slow > speed.ttft_s.fast


def test_layers_in_vram_are_faster_than_pinned_ones_and_these_than_locked_ones_beside_a_slow_cpu() -> None:
    slow_cpu = {WeightFormat.BF16: KernelRates(bytes_s=8e9, flops_s=1e11, rows=48)}
    rates = WITH_GPU.model_copy(update={"cpu": slow_cpu})
    in_vram = predict(_plan(DESKTOP, vram_layers=8), rates)
    few_slots = _plan(DESKTOP, vram_layers=0, pin_cap_bytes=8 * GIB).model_copy(update={"expert_slots": 64})
    pinned = predict(few_slots, rates)
    locked = predict(_plan(DESKTOP, vram_layers=0, pinned_layers=0), rates)
    assert in_vram is not None and pinned is not None and locked is not None
    assert in_vram.decode_tok_s.slow > pinned.decode_tok_s.slow > locked.decode_tok_s.slow
    assert in_vram.decode_tok_s.middle > 5 * locked.decode_tok_s.middle


def test_runs_of_the_same_split_beat_the_figures() -> None:
    plan = _plan()
    one = predict(plan, RATES, [_run(plan, 3.0)])
    assert one is not None
    assert (one.decode_tok_s, one.basis, one.runs) == (Range(3.0 / 1.1, 3.0 * 1.1), "runs of this split", 1)
    more = predict(plan, None, [_run(plan, 2.0, 80.0), _run(plan, 4.0, 90.0), _run(plan, 3.0)])
    assert more is not None
    assert (more.decode_tok_s.slow, more.decode_tok_s.fast) == (2.0, 4.0)
    assert more.prefill_tok_s is not None
    assert more.prefill_tok_s.slow < 80.0 < 90.0 < more.prefill_tok_s.fast
    assert (more.prompt_tokens, more.prompt_basis) == (500, "runs of this split"), "as long as what was seen"
    alone = predict(plan, None, [_run(plan, 3.0)])
    assert alone is not None and alone.prefill_tok_s is None and alone.ttft_s is None
    assert speed_line(alone) == "About 2.7 to 3.3 tokens a second (runs of this split)"


def test_prompts_of_runs_correct_the_sum_of_a_prompt_of_another_length() -> None:
    plan = _plan(context_tokens=4096 + 256)
    figures = Figures(plan, RATES)

    def middle(tokens: int) -> float:
        ends = (tokens / figures.prompt_s(tokens, slowest=slowest) for slowest in (True, False))
        return Range(*ends).middle

    seen = predict(plan, RATES, [_run(plan, 3.0, middle(500) / 2)])
    assert seen is not None and seen.prefill_tok_s is not None
    assert seen.prefill_tok_s.middle == pytest.approx(middle(4096) / 2), "half as fast as expected, at any length"
    assert (seen.prompt_tokens, seen.prompt_basis) == (4096, "runs of this split")


def test_where_only_answers_were_seen_prompts_are_told_by_figures_and_the_line_says_so() -> None:
    plan = _plan()
    speed = predict(plan, RATES, [_run(plan, 3.0)])
    assert speed is not None
    assert (speed.basis, speed.prompt_basis) == ("runs of this split", "figures of this PC")
    line = speed_line(speed)
    assert line.startswith("About 2.7 to 3.3 tokens a second (runs of this split); a prompt of 255 tokens takes ")
    assert line.endswith(" s (figures of this PC)")


def test_runs_of_another_split_correct_the_sum() -> None:
    there, here = _plan(DESKTOP, vram_layers=2, pinned_layers=0), _plan(DESKTOP, vram_layers=6, pinned_layers=0)
    plain_there, plain_here = predict(there, WITH_GPU), predict(here, WITH_GPU)
    assert plain_there is not None and plain_here is not None and plain_here.prefill_tok_s is not None
    half = predict(here, WITH_GPU, [_run(there, plain_there.decode_tok_s.middle / 2)])
    assert half is not None and half.prefill_tok_s is not None
    assert (half.basis, half.runs) == ("runs of this model", 1)
    assert half.decode_tok_s.middle == pytest.approx(plain_here.decode_tok_s.middle / 2)
    assert (half.prefill_tok_s, half.prompt_basis) == (plain_here.prefill_tok_s, "figures of this PC")
    figures = Figures(there, WITH_GPU)
    seen = math.sqrt(math.prod(500 / figures.prompt_s(500, slowest=slowest) for slowest in (True, False))) / 3
    third = predict(here, WITH_GPU, [_run(there, 9.0, seen)])
    assert third is not None and third.prefill_tok_s is not None
    assert third.prefill_tok_s.middle == pytest.approx(plain_here.prefill_tok_s.middle / 3)
    assert third.prompt_basis == "runs of this model"


def test_a_run_without_a_pinned_side_of_the_ring_is_compared_with_a_sum_without_one() -> None:
    plan = _plan(DESKTOP, vram_layers=2, pinned_layers=0, context_tokens=4096 + 256)
    assert plan.ring_staged
    slow = plan.model_copy(update={"ring_staged": False})
    figures = Figures(slow, WITH_GPU)
    seen = math.sqrt(math.prod(500 / figures.prompt_s(500, slowest=slowest) for slowest in (True, False)))
    there, plain = predict(plan, WITH_GPU, [_run(slow, 9.0, seen)]), predict(plan, WITH_GPU)
    assert there is not None and there.prefill_tok_s is not None
    assert plain is not None and plain.prefill_tok_s is not None
    assert there.prefill_tok_s.middle == pytest.approx(plain.prefill_tok_s.middle), "exactly as fast as expected"


def test_runs_of_other_models_and_devices_do_not_matter() -> None:
    plan = _plan()
    foreign = _run(plan, 99.0).model_copy(update={"model": "other (bf16)"})
    on_gpu = _run(plan, 99.0).model_copy(update={"device": "cuda"})
    assert predict(plan, RATES, [foreign, on_gpu]) == predict(plan, RATES)


def test_a_simulated_gpu_has_its_own_runs_and_no_figures() -> None:
    simulated = _plan(simulated_gpu=SimulatedGpu(vram_bytes=4 * GIB, pin_bytes=GIB))
    assert predict(simulated, WITH_GPU) is None
    assert predict(simulated, WITH_GPU, [_run(_plan(), 5.0)]) is None
    assert predict(simulated, WITH_GPU, [_run(simulated, 5.0)]) is not None


def test_short_answers_teach_nothing() -> None:
    plan = _plan()
    asked = {"prompt_tokens": 10, "prefill_tok_s": 50.0}
    assert run_of(plan, answer_tokens=3, decode_tok_s=9.0, **asked) is None  # type: ignore[arg-type]
    assert run_of(plan, answer_tokens=30, decode_tok_s=None, **asked) is None  # type: ignore[arg-type]
    kept = run_of(plan, answer_tokens=30, decode_tok_s=9.0, **asked)  # type: ignore[arg-type]
    assert kept is not None
    assert kept.prefill_tok_s is None, "ten tokens say nothing about a prompt"


def test_the_line_says_rates_times_and_where_they_are_from() -> None:
    speed = Speed(Range(9.26, 13.9), "figures of this PC", prefill_tok_s=Range(100, 204.8), prompt_tokens=2048)
    assert speed_line(speed) == (
        "About 9.3 to 14 tokens a second; a prompt of 2,048 tokens takes 10 to 20 s (figures of this PC)"
    )
