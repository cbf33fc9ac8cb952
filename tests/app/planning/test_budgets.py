"""Limits of the pools: every budget is the sum of its terms, and reserves fit small machines too."""

import pytest

from app.planning.budgets import CUDA_CONTEXT_BYTES, budgets, choose_device
from app.planning.terms import Budget
from app.planning.wishes import Wishes
from engine.contract.facts import Reading
from engine.contract.plan import Pool, SimulatedGpu
from engine.contract.units import MIB
from tests.support.machines import gib_bytes, gpu, machine

SIMULATED = Wishes(simulated_gpu=SimulatedGpu(vram_bytes=gib_bytes(1), pin_bytes=gib_bytes(1)))


def _adds_up(budget: Budget) -> bool:
    return budget.bytes == max(0, sum(term.bytes for term in budget.terms))


def test_the_device_is_the_simulated_one_if_asked_for_else_cuda_else_the_cpu() -> None:
    with_card = machine(gib_bytes(64), gpu(gib_bytes(24)))
    assert choose_device(with_card, SIMULATED) == "simulated"
    assert choose_device(with_card, Wishes()) == "cuda"
    assert choose_device(machine(gib_bytes(64)), Wishes()) == "cpu"


def test_vram_leaves_what_others_use_and_a_reserve() -> None:
    found = budgets(machine(gib_bytes(64), gpu(gib_bytes(32), used=gib_bytes(2))), Wishes())
    assert found.vram.bytes == gib_bytes(29)
    assert _adds_up(found.vram)
    small = budgets(machine(gib_bytes(64), gpu(gib_bytes(8))), Wishes())
    assert small.vram.bytes == gib_bytes(8) - 512 * MIB
    own = budgets(machine(gib_bytes(64), gpu(gib_bytes(8))), Wishes(vram_reserve_bytes=0))
    assert own.vram.bytes == gib_bytes(8)


@pytest.mark.parametrize(("total", "reserve"), [(192, 19.2), (63, 6.3), (32, 4), (24, 3), (8, 1)])
def test_the_ram_reserve_scales_with_the_machine(total: float, reserve: float) -> None:
    found = budgets(machine(gib_bytes(total)), Wishes())
    assert found.ram.bytes == pytest.approx(gib_bytes(total - reserve), abs=2)
    assert _adds_up(found.ram)


def test_ram_that_others_use_is_not_counted() -> None:
    facts = machine(gib_bytes(32), ram_available=gib_bytes(27))
    assert budgets(facts, Wishes()).ram.bytes == gib_bytes(23)
    assert budgets(facts, Wishes(ram_reserve_bytes=0)).ram.bytes == gib_bytes(27)


def test_a_simulated_gpu_has_no_reserve_and_takes_its_memory_from_ram() -> None:
    facts = machine(gib_bytes(32))
    found, plain = budgets(facts, SIMULATED), budgets(facts, Wishes())
    assert found.vram.bytes == gib_bytes(1)
    assert found.costs.context_bytes == 0
    assert found.ram.bytes is not None
    assert plain.ram.bytes == found.ram.bytes + gib_bytes(1)


def test_commit_is_limited_only_where_a_limit_was_read() -> None:
    assert budgets(machine(gib_bytes(32)), Wishes()).commit.bytes is None
    facts = machine(gib_bytes(32), commit_limit=gib_bytes(40), commit_used=gib_bytes(10))
    assert budgets(facts, Wishes()).commit.bytes == gib_bytes(27.5)


def test_the_drivers_share_is_assumed_where_it_was_not_measured() -> None:
    card = gpu(gib_bytes(24), context_bytes=None)
    assert budgets(machine(gib_bytes(64), card), Wishes()).costs.context_bytes == CUDA_CONTEXT_BYTES
    assert budgets(machine(gib_bytes(64), gpu(gib_bytes(24))), Wishes()).costs.context_bytes == 0


def test_a_lock_limit_binds_only_where_pageable_layers_are_allowed() -> None:
    facts = machine(gib_bytes(32), os="linux", memlock_limit=8 * MIB)
    assert budgets(facts, Wishes()).locked.bytes is None
    assert budgets(facts, Wishes(allow_pageable=True)).locked.bytes == 8 * MIB
    unlimited = facts.model_copy(update={"memlock_unlimited": True})
    assert budgets(unlimited, Wishes(allow_pageable=True)).locked.bytes is None


def test_unknown_ram_is_no_limit_but_a_missing_gpu_is() -> None:
    facts = machine(1).model_copy(update={"ram_total": Reading(), "ram_available": Reading()})
    found = budgets(facts, Wishes())
    assert found.ram.bytes is None
    assert found.by_pool()[Pool.VRAM] == found.by_pool()[Pool.PINNED] == 0
