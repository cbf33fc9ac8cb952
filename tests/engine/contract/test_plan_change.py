"""What a change of the split takes while it happens, and why one is refused: known before an engine is asked."""

import pytest

from engine.contract.errors import NotEnoughRamError, PlanMismatchError
from engine.contract.estimate import Costs, Split, ledger
from engine.contract.kv_types import kept_in
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.contract.plan_change import PlanWish, changed_plan, check_change, check_peak, move_peak
from engine.contract.seats import Assignment, assign, movers
from tests.support.tiny_plan import tiny_shape

BANK = 4 * 3 * 64 * 96 * 2
V, P, L = Tier.VRAM, Tier.PINNED, Tier.LOCKED
FOUR = (0, 1, 2, 3)


def gpu_plan(*tiers: Tier, slots: int = 4) -> MemoryPlan:
    shape = tiny_shape(len(tiers))
    split = Split(context_tokens=512, prefill_chunk=64, expert_slots=slots, tiers=tiers, on_gpu=True)
    return MemoryPlan(
        model_dir="/models/tiny",
        model=shape,
        device="simulated",
        simulated=SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30),
        context_tokens=512,
        prefill_chunk=64,
        expert_slots=slots,
        tiers=tiers,
        ledger=ledger(shape, split, Costs()),
        budgets=dict.fromkeys(Pool),
    )


def assigned(old: MemoryPlan, new: MemoryPlan) -> list[Assignment]:
    seated = ((layer, tier, tier, BANK) for layer, tier in zip(FOUR, old.tiers, strict=True))
    return assign(movers(seated, dict(zip(FOUR, new.tiers, strict=True))))


def test_layers_that_leave_vram_need_blocks_and_those_that_only_change_their_hold_need_none() -> None:
    old = gpu_plan(V, P, P, L)
    peak = move_peak(old, (new := gpu_plan(P, P, L, L)), assigned(old, new))
    assert (peak.host_bytes, peak.pinned_bytes, peak.locked_bytes) == (BANK, 0, BANK), "the new block is the locked one"


def test_layers_that_exchange_places_need_one_block_to_stand_aside() -> None:
    old = gpu_plan(V, P, P, L)
    peak = move_peak(old, (new := gpu_plan(P, V, P, L)), assigned(old, new))
    assert (peak.host_bytes, peak.pinned_bytes, peak.locked_bytes) == (BANK, 0, 0)


def test_a_layer_that_fell_stays_where_it_is_while_the_same_is_asked_for() -> None:
    seated = [(0, P, L, BANK), (1, P, P, BANK)]
    assert movers(seated, {0: P, 1: P}) == []
    assert [mover.layer for mover in movers(seated, {0: L, 1: V})] == [1]


def test_where_there_is_no_room_beside_what_is_held_the_move_is_refused_with_both_numbers() -> None:
    old, new = gpu_plan(V, P, P, L), gpu_plan(P, P, P, L)
    held = old.pool_bytes(Pool.RAM)
    short = new.model_copy(update={"budgets": {Pool.RAM: held + BANK - 1}})
    with pytest.raises(NotEnoughRamError, match=r"^Moving the layers while the engine runs needs") as refused:
        check_peak(short, {Pool.RAM: held}, move_peak(old, new, assigned(old, new)))
    assert refused.value.short_bytes == 1


def test_another_type_of_the_kv_cache_is_named_and_not_taken_for_another_model() -> None:
    old = gpu_plan(V, P, P, L)
    new = old.model_copy(update={"model": kept_in(old.model, "fp8")})
    with pytest.raises(PlanMismatchError, match=r"^The engine keeps keys and values in bf16; the plan is for fp8\.$"):
        check_change(old, new)
    with pytest.raises(PlanMismatchError, match="another model folder"):
        check_change(old, changed_plan(old, PlanWish()).model_copy(update={"model_dir": "/models/other"}))
