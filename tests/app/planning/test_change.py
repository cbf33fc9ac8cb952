"""From the split that runs to another one: what moves, and when only a start helps."""

from app.core.session import SessionState
from app.planning.change import Move, change_of, same_split, why_restart
from engine.contract.errors import Problem
from engine.contract.estimate import banks
from engine.contract.kv_types import kept_in
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.residency import ResidencyReport
from engine.contract.units import GIB
from tests.app.ui import samples

BANK = banks(samples.MINIMAX)[0]


def running(session: SessionState | None = None) -> tuple[MemoryPlan, ResidencyReport]:
    state = session or samples.ready().session
    assert state.plan is not None and state.residency is not None
    return state.plan, state.residency


def reason(new: MemoryPlan, session: SessionState | None = None) -> Problem | None:
    return why_restart(*running(session), new)


def longer() -> MemoryPlan:
    return samples.plan_of(samples.MINIMAX, 4, 50, context=66_816)


def test_layers_that_move_are_counted_by_where_they_come_from_and_go_to() -> None:
    plan, report = running()
    change = change_of(plan, report, longer())
    assert change.moves == (
        Move(Tier.VRAM, Tier.PINNED, 4, 4 * BANK),
        Move(Tier.PINNED, Tier.LOCKED, 4, 4 * BANK),
    )
    assert change.context_tokens == (34_048, 66_816)
    assert change.kv_bytes[1] > change.kv_bytes[0] > 8 * GIB
    assert (change.layers, change.from_vram_bytes, change.to_vram_bytes, change.within_ram_bytes) == (
        8,
        4 * BANK,
        0,
        4 * BANK,
    )


def test_the_same_split_under_other_limits_is_no_change() -> None:
    plan, _ = running()
    assert same_split(plan, plan.model_copy(update={"budgets": {}, "load_peak": {}}))
    assert not same_split(plan, plan.model_copy(update={"expert_slots": 1}))
    assert not same_split(plan, plan.model_copy(update={"model_dir": "/models/other"}))


def test_a_split_that_fits_needs_no_start() -> None:
    assert reason(longer()) is None


def test_another_model_and_another_type_of_the_kv_cache_need_one() -> None:
    plan, _ = running()
    other = samples.plan_of(samples.DEMO, 6, 7, context=4096).model_copy(update={"model_dir": "/models/other"})
    found = reason(other)
    assert found is not None and "another model folder" in found.sentence
    assert change_of(*running(), other).moves == ()
    found = reason(plan.model_copy(update={"model": kept_in(plan.model, "fp8")}))
    assert found is not None and found.sentence == "The engine keeps keys and values in bf16; the plan is for fp8."


def test_no_room_to_move_is_told_with_both_numbers() -> None:
    report = running()[1]
    held = sum(line.bytes for line in report.ledger_settled if line.pool is Pool.RAM)
    tight = longer().model_copy(update={"budgets": {Pool.RAM: held + 4 * BANK - GIB}})
    assert tight.pool_bytes(Pool.RAM) <= held + 4 * BANK
    found = reason(tight)
    assert found is not None and found.kind == "ram"
    assert found.short_bytes is not None and found.short_bytes > 0


def test_after_a_refused_pin_no_layer_is_pinned_anew_without_a_start() -> None:
    plan, report = running()
    ring = report.model_copy(update={"ring_cause": "refused"})
    anew = why_restart(plan, ring, samples.plan_of(samples.MINIMAX, 4, 54, context=34_048))
    assert anew is not None and anew.kind == "pin_refused", "of the transfer ring too"
    fewer_pins = samples.plan_of(samples.MINIMAX, 8, 47, context=34_048)
    assert reason(fewer_pins, samples.settled().session) is None, "nothing is pinned"
    found = reason(samples.plan_of(samples.MINIMAX, 4, 54, context=34_048), samples.settled().session)
    assert found is not None and found.kind == "pin_refused"


def test_layers_that_fell_and_are_asked_for_where_they_are_do_not_move() -> None:
    plan, report = running(samples.settled().session)
    tiers = tuple(Tier.LOCKED if layer in range(55, 58) else tier for layer, tier in enumerate(plan.tiers))
    change = change_of(plan, report, plan.model_copy(update={"tiers": tiers}))
    assert change.moves == ()
