"""T12 and its kind: a refusal lists every single change that is enough, with its numbers."""

from pathlib import Path
from typing import Any

import pytest

from app.planning.held import Held, facts_without
from app.planning.others import Program
from app.planning.planner import make_plan
from app.planning.wishes import Wishes
from engine.contract.errors import (
    LockLimitError,
    NotEnoughCommitError,
    NotEnoughMemoryError,
    NotEnoughRamError,
    NotEnoughVramError,
    PinQuotaError,
    ReportedError,
    UsageError,
)
from engine.contract.facts import HardwareFacts
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.shape import ModelShape
from engine.contract.units import GIB, MIB, gib
from tests.support.machines import gib_bytes, gpu, machine, measured
from tests.support.model_configs import GEMMA4_26B, MINIMAX_M25, QWEN3_30B, shape_of


@pytest.fixture
def gemma(tmp_path: Path) -> ModelShape:
    return shape_of(GEMMA4_26B, tmp_path)


@pytest.fixture
def qwen(tmp_path: Path) -> ModelShape:
    return shape_of(QWEN3_30B, tmp_path)


def _plan(shape: ModelShape, facts: HardwareFacts, held: Any = (), **wishes: object) -> MemoryPlan:
    return make_plan(shape, facts, Wishes.model_validate(wishes), model_dir="x", held=held)


def _refusal(shape: ModelShape, facts: HardwareFacts, held: Any = (), **wishes: object) -> NotEnoughMemoryError:
    with pytest.raises(NotEnoughMemoryError) as refused:
        _plan(shape, facts, held, **wishes)
    return refused.value


def _changes(error: NotEnoughMemoryError) -> list[str]:
    return [fix.change for fix in error.fixes]


@pytest.mark.parametrize("vram", [8, 12, 16])
def test_t12_another_format_is_offered_with_its_bytes_and_really_fits(gemma: ModelShape, vram: int) -> None:
    facts = machine(gib_bytes(32), gpu(gib_bytes(vram)), ram_available=gib_bytes(27))
    error = _refusal(gemma, facts, context_tokens=4096)
    assert isinstance(error, NotEnoughRamError)
    fix = next(fix for fix in error.fixes if fix.change == "expert_format")
    assert fix.numbers == {
        "experts_bytes": 45_675_970_560,
        "nvfp4_experts_bytes": 12_846_366_720,
        "expert_format": "nvfp4",
    }
    assert "in NVFP4 its experts take 12.0 GiB instead of 42.5 GiB" in fix.sentence
    smaller = gemma.model_copy(update={"expert_format": WeightFormat.NVFP4})
    assert _plan(smaller, facts, context_tokens=4096).context_tokens == 4096


def test_t12_on_any_gpu_ram_is_named_and_not_the_pin_quota(gemma: ModelShape) -> None:
    for vram in (0, 4, 8, 12):
        facts = machine(gib_bytes(32), gpu(gib_bytes(vram)) if vram else None, ram_available=gib_bytes(27))
        error = _refusal(gemma, facts, **({} if vram == 4 else {"context_tokens": 4096}))
        assert error.kind == ("vram" if vram == 4 else "ram"), "4 GiB do not even hold the other weights"


def test_a_format_that_the_engine_runs_is_preferred_to_a_smaller_one(qwen: ModelShape) -> None:
    fp32 = qwen.model_copy(update={"expert_format": WeightFormat.FP32})
    error = _refusal(fp32, machine(gib_bytes(96)), context_tokens=4096)
    fix = next(fix for fix in error.fixes if fix.change == "expert_format")
    assert fix.numbers["expert_format"] == "bf16"
    assert "cannot run" not in fix.sentence


def test_the_left_over_process_that_is_enough_is_offered_the_smallest_first(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), ram_available=gib_bytes(50))
    small, large = Held(11, "python.exe", ram_bytes=GIB), Held(4188, "python.exe", ram_bytes=30 * GIB, vram_bytes=GIB)
    error = _refusal(qwen, facts, [large, small], context_tokens=256)
    fix = next(fix for fix in error.fixes if fix.change == "end_process")
    assert fix.sentence == "End python.exe (PID 4188), which holds 30.0 GiB of RAM and 1.0 GiB of VRAM."
    assert fix.numbers == {"end_pid": 4188}
    assert _plan(qwen, facts_without(facts, [large]), context_tokens=256).layers_in(Tier.LOCKED) == 48


def test_two_left_over_processes_are_offered_together_where_one_is_not_enough(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), ram_available=gib_bytes(50))
    held = [Held(11, "python.exe", ram_bytes=11 * GIB), Held(12, "python.exe", ram_bytes=11 * GIB)]
    error = _refusal(qwen, facts, held, context_tokens=256)
    fix = next(fix for fix in error.fixes if fix.change == "end_process")
    assert fix.sentence == "End the 2 left-over processes."
    assert set(fix.numbers.values()) == {11, 12}


def test_processes_that_hold_too_little_are_not_offered(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), ram_available=gib_bytes(20))
    assert "end_process" not in _changes(_refusal(qwen, facts, [Held(11, "p", ram_bytes=GIB)], context_tokens=256))


def test_ending_a_process_gives_back_ram_vram_pins_and_commit() -> None:
    card = gpu(24 * GIB, used=10 * GIB, shared_limit=32 * GIB, shared_used=20 * GIB)
    facts = machine(64 * GIB, card, ram_available=30 * GIB, commit_limit=80 * GIB, commit_used=50 * GIB)
    freed = facts_without(facts, [Held(1, "a", 25 * GIB, 9 * GIB, 18 * GIB), Held(2, "b", 20 * GIB)])
    assert freed.ram_available.value == 64 * GIB, "never more than there is"
    assert freed.commit_used.value == 5 * GIB
    assert freed.cuda_gpu is not None
    assert (freed.cuda_gpu.vram_used.value, freed.cuda_gpu.shared_used.value) == (1 * GIB, 2 * GIB)


def test_programs_on_the_gpu_are_offered_for_closing(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(128), gpu(gib_bytes(8), used=gib_bytes(6)), pin_measured=measured(gib_bytes(60)))
    error = _refusal(qwen, facts, context_tokens=4096)
    assert isinstance(error, NotEnoughVramError)
    assert "free_vram" in _changes(error)


def test_a_reserve_of_the_user_is_offered_for_lowering(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96))
    error = _refusal(qwen, facts, context_tokens=4096, ram_reserve_bytes=40 * GIB)
    fix = next(fix for fix in error.fixes if fix.change == "ram_reserve_bytes")
    left = fix.numbers["ram_reserve_bytes"]
    assert _plan(qwen, facts, context_tokens=4096, ram_reserve_bytes=left).layers_in(Tier.LOCKED) == 48


def test_layers_kept_out_of_vram_are_offered_for_it_where_ram_is_short(gemma: ModelShape) -> None:
    facts = machine(gib_bytes(48), gpu(gib_bytes(24)), pin_measured=measured(gib_bytes(10)))
    error = _refusal(gemma, facts, context_tokens=4096, vram_layers=0)
    fix = next(fix for fix in error.fixes if fix.change == "vram_layers")
    least = fix.numbers["vram_layers"]
    assert isinstance(least, int)
    assert _plan(gemma, facts, context_tokens=4096, vram_layers=least).layers_in(Tier.VRAM) == least
    with pytest.raises(NotEnoughRamError):
        _plan(gemma, facts, context_tokens=4096, vram_layers=least - 1)


def test_the_first_fix_is_the_sentence_of_the_error_and_all_cross_processes(qwen: ModelShape) -> None:
    error = _refusal(qwen, machine(gib_bytes(80), ram_available=gib_bytes(40)), context_tokens=256)
    assert len(error.fixes) > 1
    assert error.fix == error.fixes[0].sentence
    assert error.numbers.items() >= error.fixes[0].numbers.items()
    assert ReportedError(error.problem).fixes == error.fixes


def test_more_pins_than_the_quota_are_refused_with_what_fits(tmp_path: Path) -> None:
    minimax = shape_of(MINIMAX_M25, tmp_path)
    facts = machine(gib_bytes(192), gpu(gib_bytes(32)), pin_measured=measured(gib_bytes(94)))
    error = _refusal(minimax, facts, context_tokens=4096, vram_layers=0, pinned_layers=50)
    assert isinstance(error, PinQuotaError)
    assert _changes(error) == ["pinned_layers"]


def test_locks_beyond_the_limit_are_their_own_refusal(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(128), os="linux", memlock_limit=8 * MIB)
    error = _refusal(qwen, facts, context_tokens=256, allow_pageable=True, forced={3: "locked"})
    assert isinstance(error, LockLimitError)
    assert error.fix == "Clear the layers that are forced to be locked."


def test_a_load_that_would_not_survive_is_refused_although_the_loaded_engine_would_fit(qwen: ModelShape) -> None:
    peak = _plan(qwen, machine(gib_bytes(96)), context_tokens=256).load_peak[Pool.RAM]
    exact = machine(gib_bytes(96), ram_available=peak)
    plan = _plan(qwen, exact, context_tokens=256, ram_reserve_bytes=0)
    assert plan.load_peak[Pool.RAM] == peak
    assert plan.pool_bytes(Pool.RAM) < peak, "one tensor more than the loaded engine"
    less = machine(gib_bytes(96), ram_available=peak - 1)
    error = _refusal(qwen, less, context_tokens=256, ram_reserve_bytes=0)
    assert (error.kind, error.short_bytes) == ("ram", 1)


def test_the_commit_limit_must_hold_the_load_too(qwen: ModelShape) -> None:
    peak = _plan(qwen, machine(gib_bytes(96)), context_tokens=256).load_peak[Pool.COMMIT]
    limit = peak + 4 * GIB
    enough = _plan(qwen, machine(gib_bytes(96), commit_limit=limit), context_tokens=256)
    assert enough.pool_bytes(Pool.COMMIT) < peak
    budget = enough.budgets[Pool.COMMIT]
    assert budget is not None
    error = _refusal(
        qwen, machine(gib_bytes(96), commit_limit=limit, commit_used=budget - peak + 1), context_tokens=256
    )
    assert isinstance(error, NotEnoughCommitError)


def test_dense_weights_pass_through_ram_on_their_way_to_a_gpu(qwen: ModelShape) -> None:
    all_dense = qwen.model_copy(update={"dense_bytes": 20 * GIB, "layers": qwen.layers[:2]})
    plan = _plan(all_dense, machine(gib_bytes(64), gpu(gib_bytes(32))), context_tokens=256)
    assert plan.layers_in(Tier.VRAM) == 2
    assert plan.load_peak[Pool.RAM] > 20 * GIB
    assert plan.pool_bytes(Pool.RAM) < 2 * GIB
    error = _refusal(all_dense, machine(gib_bytes(24), gpu(gib_bytes(32))), context_tokens=256)
    assert error.kind == "ram"


def test_keys_and_values_have_the_type_of_the_model_and_no_other(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96))
    assert _plan(qwen, facts, context_tokens=256, kv_dtype="bf16").context_tokens == 256
    with pytest.raises(UsageError, match="kept in bf16; fp32 was asked for"):
        _plan(qwen, facts, context_tokens=256, kv_dtype="fp32")


def test_programs_that_hold_the_ram_are_named_with_what_they_hold(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), ram_available=gib_bytes(2))
    programs = [Program("mail.exe", 100 * MIB), Program("game.exe", 30 * GIB), Program("browser.exe", 12 * GIB)]
    with pytest.raises(NotEnoughRamError) as refused:
        make_plan(qwen, facts, Wishes(context_tokens=256), model_dir="x", programs=programs)
    error = refused.value
    assert error.fixes[0].change == "free_ram"
    assert error.fix.endswith("They hold 94.0 GiB of it now: 30.0 GiB by game.exe and 12.0 GiB by browser.exe.")
    needed = error.fixes[0].numbers["ram_available_bytes"]
    assert isinstance(needed, int)
    assert f"until {gib(needed)} of RAM are free" in error.fix
    enough = machine(gib_bytes(96), ram_available=needed)
    assert _plan(qwen, enough, context_tokens=256).layers_in(Tier.LOCKED) == 48


def test_a_pc_whose_programs_hold_everything_is_not_told_to_take_a_smaller_model(qwen: ModelShape) -> None:
    for free in (0, gib_bytes(0.2), gib_bytes(9)):
        facts = machine(gib_bytes(96), ram_available=free, commit_limit=gib_bytes(110), commit_used=gib_bytes(105))
        assert "Close other programs until" in _refusal(qwen, facts, context_tokens=256).fix
    assert _refusal(qwen, machine(gib_bytes(48), ram_available=0), context_tokens=256).fixes == ()


def test_promised_memory_comes_back_with_the_programs_it_was_promised_to(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), commit_limit=gib_bytes(100), commit_used=gib_bytes(60))
    error = _refusal(qwen, facts, context_tokens=256)
    assert _changes(error)[:2] == ["page_file", "free_commit"]
    used = error.fixes[1].numbers["commit_used_bytes"]
    assert isinstance(used, int)
    enough = machine(gib_bytes(96), commit_limit=gib_bytes(100), commit_used=used)
    assert _plan(qwen, enough, context_tokens=256).layers_in(Tier.LOCKED) == 48


def test_where_no_single_change_is_enough_two_are_told_with_their_numbers(qwen: ModelShape) -> None:
    card = gpu(gib_bytes(12), used=GIB)
    facts = machine(gib_bytes(96), card, ram_available=gib_bytes(20))
    error = _refusal(qwen, facts, context_tokens=40_960, vram_layers=4)
    assert _changes(error) == ["two_changes"]
    tokens, free = error.numbers["context_tokens"], error.numbers["ram_available_bytes"]
    assert isinstance(tokens, int) and isinstance(free, int)
    assert error.fix.startswith(f"Choose a context of at most {tokens:,} tokens, and close other programs until")
    roomy = machine(gib_bytes(96), card, ram_available=free)
    assert _plan(qwen, roomy, context_tokens=tokens, vram_layers=4).context_tokens == tokens
    full = gpu(gib_bytes(24), used=gib_bytes(23.5))
    both = _refusal(qwen, machine(gib_bytes(96), full, ram_available=gib_bytes(20)))
    assert _changes(both) == ["close_programs"]
    assert both.fix == "Close all other programs. They hold 76.0 GiB of RAM, and 23.5 GiB of GPU memory."
