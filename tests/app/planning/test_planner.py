"""Plans and refusals; cases from the field are named by their ids."""

from pathlib import Path

import pytest

from app.planning.budgets import HOST_RUNTIME_BYTES, TOKENIZER_WORD_BYTES
from app.planning.planner import make_plan
from app.planning.stops import slider_stops
from app.planning.wishes import Wishes
from engine.contract.errors import (
    NotEnoughCommitError,
    NotEnoughRamError,
    NotEnoughVramError,
    PinQuotaError,
    UsageError,
)
from engine.contract.estimate import bank_bytes, most_ring_experts, slot_bytes
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.contract.shape import ModelShape
from tests.support.machines import gib_bytes, gpu, machine, measured
from tests.support.model_configs import GEMMA4_26B, MINIMAX_M25, QWEN3_30B, shape_of

NONE_IN_VRAM = {"vram_layers": 0, "context_tokens": 4096}


def _plan(shape: ModelShape, facts: HardwareFacts, **wishes: object) -> MemoryPlan:
    return make_plan(shape, facts, Wishes.model_validate(wishes), model_dir="/models/x")


def _counts(plan: MemoryPlan) -> tuple[int, int, int, int]:
    vram, pinned, locked, pageable = (plan.layers_in(tier) for tier in Tier)
    return vram, pinned, locked, pageable


@pytest.fixture
def gemma(tmp_path: Path) -> ModelShape:
    return shape_of(GEMMA4_26B, tmp_path)


@pytest.fixture
def qwen(tmp_path: Path) -> ModelShape:
    return shape_of(QWEN3_30B, tmp_path)


@pytest.fixture
def minimax(tmp_path: Path) -> ModelShape:
    return shape_of(MINIMAX_M25, tmp_path)


def _with_card(ram: float, vram: float, **more: object) -> HardwareFacts:
    return machine(gib_bytes(ram), gpu(gib_bytes(vram)), **more)  # type: ignore[arg-type]


def test_t10_minimax_pins_what_the_measured_quota_holds(minimax: ModelShape) -> None:
    facts = _with_card(192, 32, pin_measured=measured(gib_bytes(94)))
    assert _counts(_plan(minimax, facts, **NONE_IN_VRAM)) == (0, 49, 13, 0)
    with_margin = _with_card(192, 32, pin_measured=measured(gib_bytes(89.3)))
    plan = _plan(minimax, with_margin, **NONE_IN_VRAM)
    assert _counts(plan) == (0, 47, 15, 0)
    pinned = {line.what: line.bytes for line in plan.ledger if line.pool is Pool.PINNED}
    assert pinned == {"pinned layers": 47 * 2_038_431_744, "transfer ring": 8 * slot_bytes(minimax)}


def test_t10_fifty_pinned_layers_are_refused_and_forty_nine_offered(minimax: ModelShape) -> None:
    facts = _with_card(192, 32, pin_measured=measured(gib_bytes(94)))
    with pytest.raises(PinQuotaError) as refused:
        _plan(minimax, facts, pinned_layers=50, **NONE_IN_VRAM)
    assert refused.value.short_bytes == 50 * 2_038_431_744 - gib_bytes(94)
    assert refused.value.fix == "Pin 49 layers."
    assert refused.value.numbers["pinned_layers"] == 49
    assert _counts(_plan(minimax, facts, pinned_layers=49, **NONE_IN_VRAM)) == (0, 49, 13, 0)


@pytest.mark.parametrize("wishes", [{}, {"pin_cap_bytes": gib_bytes(31.5)}])
def test_t11_gemma_pins_22_layers_and_locks_8(gemma: ModelShape, wishes: dict[str, int]) -> None:
    facts = _with_card(63, 24, pin_measured=measured(gib_bytes(31.5)))
    plan = _plan(gemma, facts, **NONE_IN_VRAM, **wishes)
    assert _counts(plan) == (0, 22, 8, 0)
    assert plan.pool_bytes(Pool.LOCKED) == 8 * 1_522_532_352


def test_t11_the_forty_percent_rule_pins_17_layers_and_locks_13(gemma: ModelShape) -> None:
    assert _counts(_plan(gemma, _with_card(63, 24), **NONE_IN_VRAM)) == (0, 17, 13, 0)


def test_t11_the_law_holds_at_every_stop(gemma: ModelShape) -> None:
    facts = _with_card(63, 24, pin_measured=measured(gib_bytes(31.5)))
    bank = bank_bytes(gemma.experts, gemma.expert_format)
    outside: list[int] = []
    found = slider_stops(gemma, facts, Wishes())
    assert len(found.stops) > 5
    for stop in found.stops:
        assert stop.pinned_layers * bank <= gib_bytes(31.5)
        assert stop.pinned_layers + stop.locked_layers + stop.vram_layers == 30
        outside.append((stop.pinned_layers + stop.locked_layers) * bank)
    assert outside == sorted(outside)


def test_t12_an_impossible_plan_names_ram_and_a_smaller_format(gemma: ModelShape) -> None:
    facts = machine(gib_bytes(32), gpu(gib_bytes(12)), ram_available=gib_bytes(27))
    for wishes in ({}, {"context_tokens": 4096}):
        with pytest.raises(NotEnoughRamError) as refused:
            _plan(gemma, facts, **wishes)
        error = refused.value
        assert error.kind == "ram"
        assert error.short_bytes is not None
        assert error.short_bytes > 0
        assert error.numbers["experts_bytes"] == 45_675_970_560
        assert error.numbers["nvfp4_experts_bytes"] == 12_846_366_720
        assert "12.0 GiB instead of 42.5 GiB" in error.fix
    assert slider_stops(gemma, facts, Wishes()).stops == ()


def test_t04_on_a_63_gib_machine_every_pool_holds(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(63), gpu(gib_bytes(24), shared_limit=gib_bytes(31.5), shared_used=gib_bytes(0.5)))
    plan = _plan(qwen, facts, context_tokens=32_768)
    kv = next(line.bytes for line in plan.ledger if line.what == "KV cache")
    assert kv == 3 << 30
    assert sum(_counts(plan)) == 48
    assert plan.expert_slots >= 16
    assert plan.device == "cuda"


def test_without_a_gpu_everything_is_locked_on_the_cpu(qwen: ModelShape) -> None:
    plan = _plan(qwen, machine(gib_bytes(96)), context_tokens=8192)
    assert plan.device == "cpu"
    assert _counts(plan) == (0, 0, 48, 0)
    assert plan.expert_slots == 0
    assert plan.pool_bytes(Pool.VRAM) == 0
    assert plan.pool_bytes(Pool.RAM) > 54 << 30


def test_without_a_wish_the_context_keeps_most_layers_in_vram(qwen: ModelShape) -> None:
    facts = _with_card(96, 24, pin_measured=measured(gib_bytes(40)))
    plan, first = _plan(qwen, facts), slider_stops(qwen, facts, Wishes()).stops[0]
    assert (plan.context_tokens, plan.layers_in(Tier.VRAM)) == (first.context_tokens, first.vram_layers)
    assert plan.context_tokens >= 4096
    one_more = plan.layers_in(Tier.VRAM) + 1
    with pytest.raises(NotEnoughVramError):
        _plan(qwen, facts, context_tokens=4096, vram_layers=one_more)


def test_without_a_gpu_and_a_wish_a_usual_context_is_taken(qwen: ModelShape) -> None:
    assert _plan(qwen, machine(gib_bytes(96))).context_tokens == 8192


def test_a_context_is_rounded_up_to_pages_and_ends_at_the_models_maximum(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96))
    assert _plan(qwen, facts, context_tokens=40_000).context_tokens == 40_192
    assert _plan(qwen, facts, context_tokens=1).context_tokens == 256
    assert _plan(qwen, facts, context_tokens=10**9).context_tokens == 40_960
    odd = qwen.model_copy(update={"max_context_tokens": 1000})
    assert _plan(odd, facts, context_tokens=999).context_tokens == 1000


def test_a_model_that_fits_vram_whole_needs_no_slots(qwen: ModelShape) -> None:
    plan = _plan(qwen, _with_card(64, 80))
    assert _counts(plan) == (48, 0, 0, 0)
    assert plan.expert_slots == 0
    assert plan.context_tokens == 40_960


def test_a_context_too_long_for_vram_is_refused_with_the_longest_that_fits(qwen: ModelShape) -> None:
    facts = _with_card(96, 7, pin_measured=measured(gib_bytes(40)))
    with pytest.raises(NotEnoughVramError) as refused:
        _plan(qwen, facts, context_tokens=40_960)
    longest = refused.value.numbers["context_tokens"]
    assert isinstance(longest, int)
    assert f"{longest:,} tokens" in refused.value.fix
    assert _plan(qwen, facts, context_tokens=longest).context_tokens == longest
    with pytest.raises(NotEnoughVramError):
        _plan(qwen, facts, context_tokens=longest + 1)


def test_too_many_vram_layers_are_refused_with_the_most_that_fit(qwen: ModelShape) -> None:
    facts = _with_card(96, 24, pin_measured=measured(gib_bytes(40)))
    with pytest.raises(NotEnoughVramError) as refused:
        _plan(qwen, facts, context_tokens=8192, vram_layers=40)
    most = refused.value.numbers["vram_layers"]
    assert isinstance(most, int)
    assert _plan(qwen, facts, context_tokens=8192, vram_layers=most).layers_in(Tier.VRAM) == most
    with pytest.raises(NotEnoughVramError):
        _plan(qwen, facts, context_tokens=8192, vram_layers=most + 1)


def test_layers_in_vram_without_a_gpu_are_refused(qwen: ModelShape) -> None:
    with pytest.raises(NotEnoughVramError) as refused:
        _plan(qwen, machine(gib_bytes(96)), vram_layers=3, context_tokens=4096)
    assert refused.value.fix == "Keep 0 layers in VRAM."


def test_ram_that_others_use_is_the_reason_if_closing_them_helps(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(80), ram_available=gib_bytes(40))
    with pytest.raises(NotEnoughRamError) as refused:
        _plan(qwen, facts, context_tokens=256)
    needed = refused.value.numbers["ram_available_bytes"]
    assert isinstance(needed, int)
    assert "Close other programs" in refused.value.fix
    freed = machine(gib_bytes(80), ram_available=needed)
    assert _counts(_plan(qwen, freed, context_tokens=256)) == (0, 0, 48, 0)


def test_a_shorter_context_is_the_fix_where_it_keeps_layers_out_of_ram(qwen: ModelShape) -> None:
    facts = _with_card(44, 24, pin_measured=measured(gib_bytes(20)))
    with pytest.raises(NotEnoughRamError) as refused:
        _plan(qwen, facts, context_tokens=40_960)
    shorter = refused.value.numbers["context_tokens"]
    assert isinstance(shorter, int)
    assert _plan(qwen, facts, context_tokens=shorter).context_tokens == shorter
    with pytest.raises(NotEnoughRamError):
        _plan(qwen, facts, context_tokens=shorter + 1)


def test_pageable_layers_take_what_ram_does_not_hold_if_allowed(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(48))
    plan = _plan(qwen, facts, context_tokens=4096, allow_pageable=True)
    locked, pageable = plan.layers_in(Tier.LOCKED), plan.layers_in(Tier.PAGEABLE)
    assert locked + pageable == 48
    assert pageable > 0
    budget = plan.budgets[Pool.RAM]
    assert budget is not None
    assert plan.load_peak[Pool.RAM] <= budget < plan.load_peak[Pool.RAM] + 1_207_959_552


def test_a_lock_limit_makes_layers_pageable_if_allowed(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), os="linux", memlock_limit=gib_bytes(4))
    assert _counts(_plan(qwen, facts, context_tokens=4096)) == (0, 0, 48, 0)
    assert _counts(_plan(qwen, facts, context_tokens=4096, allow_pageable=True)) == (0, 0, 3, 45)


def test_the_commit_limit_is_its_own_refusal(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), commit_limit=gib_bytes(60), commit_used=gib_bytes(10))
    with pytest.raises(NotEnoughCommitError) as refused:
        _plan(qwen, facts, context_tokens=256)
    growth = refused.value.numbers["page_file_growth_bytes"]
    assert isinstance(growth, int)
    grown = machine(gib_bytes(96), commit_limit=gib_bytes(60) + growth, commit_used=gib_bytes(10))
    assert _counts(_plan(qwen, grown, context_tokens=256)) == (0, 0, 48, 0)


def test_forced_layers_are_kept_and_counted(qwen: ModelShape) -> None:
    facts = _with_card(96, 24, pin_measured=measured(gib_bytes(20)))
    plan = _plan(qwen, facts, context_tokens=8192, forced={20: Tier.VRAM, 0: Tier.LOCKED, 30: Tier.PAGEABLE})
    assert plan.tiers[20] is Tier.VRAM
    assert plan.tiers[0] is Tier.LOCKED
    assert plan.tiers[30] is Tier.PAGEABLE
    free = _plan(qwen, facts, context_tokens=8192)
    assert plan.layers_in(Tier.VRAM) == free.layers_in(Tier.VRAM)
    assert plan.layers_in(Tier.PINNED) == free.layers_in(Tier.PINNED)


def test_forced_layers_that_cannot_be_are_refused(qwen: ModelShape) -> None:
    with pytest.raises(UsageError, match="no routed experts"):
        _plan(qwen, machine(gib_bytes(96)), forced={99: Tier.LOCKED})
    with pytest.raises(UsageError, match="no GPU"):
        _plan(qwen, machine(gib_bytes(96)), forced={1: Tier.PINNED})
    with pytest.raises(UsageError, match="0 layers in VRAM asked for; 1 to 48 are possible"):
        _plan(qwen, _with_card(96, 24), vram_layers=0, context_tokens=4096, forced={1: Tier.VRAM})


def test_a_number_of_pinned_layers_is_a_limit(qwen: ModelShape) -> None:
    facts = _with_card(96, 24, pin_measured=measured(gib_bytes(40)))
    few = _plan(qwen, facts, context_tokens=8192, pinned_layers=5)
    assert few.layers_in(Tier.PINNED) == 5
    none = _plan(qwen, facts, context_tokens=8192, pinned_layers=0)
    assert none.layers_in(Tier.PINNED) == none.expert_slots == 0
    small = _with_card(96, 48, pin_measured=measured(gib_bytes(60)))
    all_of_them = _plan(qwen, small, context_tokens=8192, pinned_layers=30)
    assert all_of_them.layers_in(Tier.PINNED) == 48 - all_of_them.layers_in(Tier.VRAM)


def test_a_gpu_too_small_for_slots_is_told_to_pin_nothing(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), gpu(qwen.dense_bytes + gib_bytes(0.7)), pin_measured=measured(gib_bytes(40)))
    with pytest.raises(NotEnoughVramError) as refused:
        _plan(qwen, facts)
    assert refused.value.numbers["pinned_layers"] == 0
    plan = _plan(qwen, facts, pinned_layers=0)
    assert _counts(plan) == (0, 0, 48, 0)


def test_a_gpu_too_small_for_the_dense_part_says_so(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), gpu(gib_bytes(2)), pin_measured=measured(gib_bytes(40)))
    with pytest.raises(NotEnoughVramError) as refused:
        _plan(qwen, facts)
    assert refused.value.short_bytes is not None
    assert refused.value.short_bytes > 0
    assert "GPU with more memory" in refused.value.fix


def test_a_simulated_gpu_runs_every_tier(qwen: ModelShape) -> None:
    small = qwen.model_copy(update={"layers": qwen.layers[:6], "dense_bytes": 10**8})
    simulated = SimulatedGpu(vram_bytes=gib_bytes(3), pin_bytes=gib_bytes(2.5))
    plan = _plan(small, machine(gib_bytes(24)), simulated_gpu=simulated, context_tokens=4096)
    assert plan.device == "simulated"
    assert plan.simulated == simulated
    vram, pinned, locked, _ = _counts(plan)
    assert min(vram, pinned, locked) > 0
    runtime = next(line for line in plan.ledger if line.pool is Pool.RAM and line.what == "engine process")
    assert runtime.bytes == HOST_RUNTIME_BYTES + qwen.vocab_size * TOKENIZER_WORD_BYTES


def test_locked_layers_get_a_ring_whose_pinned_side_fits_the_quota(minimax: ModelShape) -> None:
    quota = gib_bytes(94)
    plan = _plan(minimax, _with_card(192, 32, pin_measured=measured(quota)), **NONE_IN_VRAM)
    assert plan.ring_staged
    assert plan.ring_experts == most_ring_experts(minimax)
    assert plan.pool_bytes(Pool.PINNED) <= quota
    whole = _plan(minimax, _with_card(192, 32, pin_measured=measured(49 * bank_bytes_of(minimax))), **NONE_IN_VRAM)
    assert whole.layers_in(Tier.PINNED) == 48, "one layer less, so that prompts of the locked ones reach the GPU"
    fixed = _with_card(192, 32, pin_measured=measured(49 * bank_bytes_of(minimax)))
    asked = _plan(minimax, fixed, pinned_layers=49, **NONE_IN_VRAM)
    assert (asked.layers_in(Tier.PINNED), asked.ring_staged) == (49, False), "a number the user chose is kept"
    assert asked.ring_experts == most_ring_experts(minimax)


def test_a_ring_is_a_small_part_of_a_small_quota(minimax: ModelShape) -> None:
    plan = _plan(minimax, _with_card(192, 32, pin_measured=measured(gib_bytes(0.5))), **NONE_IN_VRAM)
    assert plan.ring_staged
    assert 2 <= plan.ring_experts < most_ring_experts(minimax)
    assert plan.ring_experts * slot_bytes(minimax) <= gib_bytes(0.5) / 16


def bank_bytes_of(shape: ModelShape) -> int:
    """Bytes of one layer's bank."""
    return bank_bytes(shape.experts, shape.expert_format)
