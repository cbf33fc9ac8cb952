"""Speed: sums of measured figures by hand, corrected by runs, never told without either."""

from typing import Any

import pytest

from app.planning.planner import make_plan
from app.planning.speed import (
    Range,
    Speed,
    SpeedRun,
    needed_formats,
    not_measured,
    predict,
    run_of,
    speed_line,
)
from app.planning.wishes import Wishes
from engine.contract.estimate import bank_bytes
from engine.contract.facts import HardwareFacts
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, SimulatedGpu
from engine.contract.rates import KERNELS, KernelRates, MeasuredRates
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape
from engine.contract.units import GIB
from tests.support.machines import gib_bytes, gpu, machine, measured

KV = KvShape(n_kv_heads=4, key_dim=128, value_dim=128, n_heads=4)
SHAPE = ModelShape(
    name="even",
    family="mixtral",
    hidden_size=1024,
    vocab_size=1024,
    max_context_tokens=4096,
    layers=tuple(LayerShape(index=index, kv=KV, moe=True) for index in range(8)),
    experts=ExpertShape(n_experts=32, top_k=8, width=1024, inner=1024),
    expert_format=WeightFormat.BF16,
    dense_format=WeightFormat.BF16,
    dense_bytes=100_000_000,
    source="config",
)
BANK = 32 * 3 * 1024 * 1024 * 2
ACTIVE = 8 * BANK // 4  # of all layers
CPU = {WeightFormat.BF16: KernelRates(bytes_s=1e10, flops_s=1e11)}
RATES = MeasuredRates(device="CPU", threads=8, cpu=CPU, call_s=1e-9, memcpy_bytes_s=1e10, elapsed_s=3)
WITH_GPU = RATES.model_copy(
    update={
        "device": "card",
        "gpu": {WeightFormat.BF16: KernelRates(bytes_s=5e11, flops_s=1e14)},
        "gpu_call_s": 1e-9,
        "pinned_copy_bytes_s": 2e10,
        "copy_call_s": 1e-9,
        "pageable_copy_bytes_s": 1e10,
    }
)
DESKTOP = machine(gib_bytes(64), gpu(gib_bytes(12)), pin_measured=measured(GIB))


def _plan(facts: HardwareFacts = machine(gib_bytes(64)), **wishes: Any) -> MemoryPlan:  # noqa: B008 - frozen
    return make_plan(SHAPE, facts, Wishes(**{"context_tokens": 256, **wishes}), model_dir="x")


def _run(plan: MemoryPlan, decode_tok_s: float, prefill_tok_s: float | None = None) -> SpeedRun:
    found = run_of(plan, prompt_tokens=500, answer_tokens=100, decode_tok_s=decode_tok_s, prefill_tok_s=prefill_tok_s)
    assert found is not None
    return found


def test_nothing_is_said_before_something_was_measured() -> None:
    assert predict(_plan(), None) is None
    assert speed_line(None) == "Speed: not measured on this PC"


def test_on_a_cpu_a_token_takes_as_long_as_its_weights_are_read() -> None:
    plan = _plan()
    speed = predict(plan, RATES)
    assert speed is not None
    kv = 256 * 8 * 4 * 256 * 2
    slowest = 1e10 / (ACTIVE + 100_000_000 + kv)
    fastest = 1e10 / (ACTIVE + 100_000_000 - 1024 * 1024 * 2)
    assert speed.decode_tok_s.slow == pytest.approx(slowest / 1.15, rel=1e-3)
    assert speed.decode_tok_s.fast == pytest.approx(fastest * 1.15, rel=1e-3)
    assert speed.basis == "figures of this PC"


def test_calls_count_where_weights_are_small() -> None:
    slow_calls = predict(_plan(), RATES.model_copy(update={"call_s": 1e-3}))
    assert slow_calls is not None
    assert slow_calls.decode_tok_s.fast < 1.15 / (8 * (10 + 8) * 1e-3)


def test_a_prompt_is_bound_by_operations() -> None:
    plan = _plan(prefill_chunk=512)
    speed = predict(plan, RATES)
    assert speed is not None
    operations = 2 * 512 * (50_000_000 + 8 * 8 * 3 * 1024 * 1024)
    waiting = speed.prefill_s(512)
    assert waiting is not None
    assert waiting.fast == pytest.approx(operations / 1e11 / 1.15, rel=1e-3)
    assert waiting.slow > waiting.fast


def test_layers_in_vram_are_faster_than_pinned_ones_and_these_than_locked_ones() -> None:
    in_vram = predict(_plan(DESKTOP, vram_layers=8), WITH_GPU)
    few_slots = _plan(DESKTOP, vram_layers=0, pin_cap_bytes=8 * GIB).model_copy(update={"expert_slots": 64})
    pinned = predict(few_slots, WITH_GPU)
    locked = predict(_plan(DESKTOP, vram_layers=0, pinned_layers=0), WITH_GPU)
    assert in_vram is not None and pinned is not None and locked is not None
    assert in_vram.decode_tok_s.slow > pinned.decode_tok_s.slow > locked.decode_tok_s.slow
    assert in_vram.decode_tok_s.middle > 5 * locked.decode_tok_s.middle


def test_misses_of_pinned_layers_are_between_even_and_favoured_choices() -> None:
    plan = _plan(DESKTOP, vram_layers=0, pin_cap_bytes=8 * GIB)
    plan = plan.model_copy(update={"expert_slots": 64})  # of 256: a quarter is held, or a half if some are favoured
    speed = predict(plan, WITH_GPU)
    assert speed is not None
    slow_s = 1 / (speed.decode_tok_s.slow * 1.15) - 0.75 * ACTIVE / 2e10
    fast_s = 1 / (speed.decode_tok_s.fast / 1.15) - 0.5 * ACTIVE / 2e10
    assert slow_s == pytest.approx((ACTIVE + 100_000_000 + 256 * 8 * 4 * 256 * 2) / 5e11, rel=0.02)
    assert fast_s == pytest.approx((ACTIVE + 100_000_000 - 1024 * 1024 * 2) / 5e11, rel=0.02)


def test_weights_that_were_not_measured_have_no_prediction() -> None:
    nvfp4 = SHAPE.model_copy(update={"expert_format": WeightFormat.NVFP4})
    plan = make_plan(nvfp4, machine(gib_bytes(64)), Wishes(context_tokens=256), model_dir="x")
    assert predict(plan, RATES) is None
    assert not_measured(plan, RATES) == (WeightFormat.NVFP4,)
    assert not_measured(plan, None) == needed_formats(nvfp4) == (WeightFormat.BF16, WeightFormat.NVFP4)
    assert predict(_plan(DESKTOP), RATES) is None, "a GPU was never measured"
    assert not_measured(_plan(DESKTOP), RATES) == (WeightFormat.BF16,)


def test_packed_experts_are_as_fast_as_their_own_format_was_measured() -> None:
    nvfp4 = SHAPE.model_copy(update={"expert_format": WeightFormat.NVFP4})
    plan = make_plan(nvfp4, machine(gib_bytes(64)), Wishes(context_tokens=256), model_dir="x")
    slow = KernelRates(bytes_s=1e8, flops_s=1e10)
    speed = predict(plan, RATES.model_copy(update={"cpu": {**CPU, WeightFormat.NVFP4: slow}}))
    assert speed is not None
    active = 8 * bank_bytes(nvfp4.experts, WeightFormat.NVFP4) // 4
    assert speed.decode_tok_s.fast == pytest.approx(1.15 / (active / 1e8 + (1e8 - 1024 * 1024 * 2) / 1e10), rel=1e-3)


def test_figures_of_other_kernels_do_not_count() -> None:
    old = RATES.model_copy(update={"kernels": KERNELS - 1})
    assert predict(_plan(), old) is None
    assert not_measured(_plan(), old) == (WeightFormat.BF16,)


def test_runs_of_the_same_split_beat_the_figures() -> None:
    plan = _plan()
    one = predict(plan, RATES, [_run(plan, 3.0)])
    assert one == Speed(Range(3.0 / 1.1, 3.0 * 1.1), one.prefill_tok_s if one else None, "runs of this split", 1)
    more = predict(plan, None, [_run(plan, 2.0, 80.0), _run(plan, 4.0, 90.0), _run(plan, 3.0)])
    assert more is not None
    assert (more.decode_tok_s.slow, more.decode_tok_s.fast) == (2.0, 4.0)
    assert more.prefill_tok_s is not None
    assert more.prefill_tok_s.slow < 80.0 < 90.0 < more.prefill_tok_s.fast
    alone = predict(plan, None, [_run(plan, 3.0)])
    assert alone is not None and alone.prefill_tok_s is None
    assert speed_line(alone) == "About 2.7 to 3.3 tokens a second (runs of this split)"


def test_runs_of_another_split_correct_the_sum() -> None:
    there, here = _plan(DESKTOP, vram_layers=2, pinned_layers=0), _plan(DESKTOP, vram_layers=6, pinned_layers=0)
    plain_there, plain_here = predict(there, WITH_GPU), predict(here, WITH_GPU)
    assert plain_there is not None and plain_here is not None
    half = predict(here, WITH_GPU, [_run(there, plain_there.decode_tok_s.middle / 2)])
    assert half is not None
    assert (half.basis, half.runs) == ("runs of this model", 1)
    assert half.decode_tok_s.middle == pytest.approx(plain_here.decode_tok_s.middle / 2)


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
    speed = Speed(Range(9.26, 13.9), Range(100, 204.8), "figures of this PC")
    assert speed_line(speed, 2048) == (
        "About 9.3 to 14 tokens a second; a prompt of 2,048 tokens takes 10 to 20 s (figures of this PC)"
    )
