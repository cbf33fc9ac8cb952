"""The machine beside the engine that runs: the same plan for the same wishes, and no room that is not there."""

from pathlib import Path

import pytest

from app.planning.beside import facts_beside
from app.planning.held import freed
from app.planning.planner import make_plan
from app.planning.wishes import Wishes
from engine.contract.estimate import banks
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu
from engine.contract.residency import LayerResidency, ResidencyReport
from engine.contract.shape import ModelShape
from engine.contract.units import GIB, MIB
from engine.system.recorded import RecordedMachine
from tests.app.ui import samples
from tests.support.model_configs import QWEN3_30B, shape_of

MACHINES = Path(__file__).parents[2] / "machines"
SIMULATED = Wishes(simulated_gpu=SimulatedGpu(vram_bytes=16 * GIB, pin_bytes=20 * GIB))
NAMES = ("desktop_192gb_rtx5090", "desktop_63gb_rtx4090")


def machine(name: str) -> HardwareFacts:
    return RecordedMachine(MACHINES / f"{name}.json").read()


def planned(shape: ModelShape, facts: HardwareFacts, wishes: Wishes) -> MemoryPlan:
    return make_plan(shape, facts, wishes, model_dir="/models/sample")


def report_of(plan: MemoryPlan) -> ResidencyReport:
    layers = zip(plan.model.moe_layers, plan.tiers, banks(plan.model), strict=True)
    return ResidencyReport(
        device=plan.device,
        simulated=plan.simulated is not None,
        layers=tuple(LayerResidency(layer=at, asked=tier, settled=tier, bytes=size) for at, tier, size in layers),
        ledger_asked=plan.ledger,
        ledger_settled=plan.ledger,
        self_test="equal",
    )


def with_engine(facts: HardwareFacts, plan: MemoryPlan, *, unused_bytes: int = 0) -> HardwareFacts:
    """What is read while the plan runs; `unused_bytes` of what its ledger reserves in each pool are not in use yet."""
    on_host = plan.pool_bytes(Pool.VRAM) if plan.simulated is not None else 0
    return freed(
        facts,
        ram_bytes=unused_bytes - plan.pool_bytes(Pool.RAM) - on_host,
        commit_bytes=unused_bytes - plan.pool_bytes(Pool.COMMIT) - on_host,
        vram_bytes=0 if on_host else unused_bytes - plan.pool_bytes(Pool.VRAM),
        pinned_bytes=0 if on_host else -plan.pool_bytes(Pool.PINNED),
    )


@pytest.mark.parametrize(
    ("name", "wishes"), [(NAMES[0], Wishes()), (NAMES[1], Wishes()), (NAMES[0], SIMULATED)], ids=[*NAMES, "simulated"]
)
@pytest.mark.parametrize("unused_bytes", [0, 100 * MIB, -100 * MIB, GIB])
def test_the_same_wishes_have_the_same_plan_while_the_engine_runs(
    tmp_path: Path, name: str, wishes: Wishes, unused_bytes: int
) -> None:
    shape, facts = shape_of(QWEN3_30B, tmp_path), machine(name)
    before = planned(shape, facts, wishes)
    now = with_engine(facts, before, unused_bytes=unused_bytes)
    assert planned(shape, facts_beside(now, report_of(before), before, wishes), wishes) == before


def test_without_a_gpu_everything_that_the_engine_holds_is_ram() -> None:
    before = planned(samples.DEMO, samples.NO_GPU, Wishes())
    now = with_engine(samples.NO_GPU, before)
    assert planned(samples.DEMO, facts_beside(now, report_of(before), before), Wishes()) == before


def test_what_other_programs_took_since_is_not_planned_with(tmp_path: Path) -> None:
    shape, facts = shape_of(QWEN3_30B, tmp_path), machine(NAMES[1])
    before = planned(shape, facts, Wishes())
    now = freed(with_engine(facts, before), ram_bytes=-3 * GIB, vram_bytes=-2 * GIB)
    after = planned(shape, facts_beside(now, report_of(before), before), Wishes())
    for pool, taken in ((Pool.RAM, 3 * GIB), (Pool.VRAM, 2 * GIB)):
        was, now_is = before.budgets[pool], after.budgets[pool]
        assert was is not None and now_is is not None
        assert was - now_is == taken


def test_a_reserve_that_the_user_raised_does_not_count_as_taken(tmp_path: Path) -> None:
    shape, facts = shape_of(QWEN3_30B, tmp_path), machine(NAMES[1])
    reserved = Wishes(vram_reserve_bytes=3 * GIB)
    before = planned(shape, facts, reserved)
    beside = facts_beside(with_engine(facts, before), report_of(before), before, reserved)
    free = planned(shape, beside, Wishes(vram_reserve_bytes=GIB))
    was, now_is = before.budgets[Pool.VRAM], free.budgets[Pool.VRAM]
    assert was is not None and now_is == was + 2 * GIB
