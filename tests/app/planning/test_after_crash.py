"""What an engine is started with after a crash: less of what it ran out of, and only what can be planned."""

from pathlib import Path
from typing import Any

import pytest

from app.planning.after_crash import cause_of, restart_fix
from app.planning.planner import make_plan
from app.planning.wishes import Wishes
from app.supervision.exit_words import explain_end
from engine.contract.errors import NotEnoughVramError, Problem, SplitpinError
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.shape import ModelShape
from engine.contract.units import GIB
from tests.support.machines import gib_bytes, gpu, machine, measured
from tests.support.model_configs import QWEN3_30B, shape_of

PC = machine(gib_bytes(128), gpu(24 * GIB, used=GIB), pin_measured=measured(30 * GIB))


@pytest.fixture
def qwen(tmp_path: Path) -> ModelShape:
    return shape_of(QWEN3_30B, tmp_path)


def _ended(words: str) -> Problem:
    return explain_end(1, (words,)).problem


PINS = _ended("RuntimeError: cudaHostRegister failed: out of memory")
VRAM = _ended("torch.OutOfMemoryError: CUDA out of memory")


class _Desk:
    """Plans for one model on one machine."""

    def __init__(self, shape: ModelShape, facts: HardwareFacts = PC, **wishes: Any) -> None:
        self.shape, self.facts, self.wishes = shape, facts, Wishes(**wishes)

    def plans(self, changed: dict[str, Any]) -> MemoryPlan | None:
        try:
            return make_plan(self.shape, self.facts, self.wishes.model_copy(update=changed), model_dir="x")
        except SplitpinError:
            return None

    @property
    def sent(self) -> MemoryPlan:
        plan = self.plans({})
        assert plan is not None
        return plan


def test_the_cause_is_what_log_exit_code_or_engine_say() -> None:
    assert (cause_of(PINS), cause_of(VRAM)) == ("pinned", "vram")
    assert cause_of(explain_end(-4, ()).problem) == "illegal_instruction"
    told = NotEnoughVramError(needed_bytes=2, available_bytes=1, fix="")
    assert cause_of(told.problem) == "vram"
    assert cause_of(Problem(kind="model_file", sentence="", fix="")) == ""


def test_after_a_refused_pin_as_many_layers_are_pinned_as_could_be(qwen: ModelShape) -> None:
    desk = _Desk(qwen, context_tokens=4096)
    asked = desk.sent.layers_in(Tier.PINNED)
    assert asked > 12
    fix = restart_fix(PINS, desk.sent, 11, PC, desk.plans)
    assert fix is not None
    assert (fix.sentence, fix.numbers) == ("Start with 11 pinned layers", {"pinned_layers": 11})
    assert (once := desk.plans(fix.numbers)) is not None and once.layers_in(Tier.PINNED) == 11
    unseen = restart_fix(PINS, desk.sent, 0, PC, desk.plans)
    assert unseen is not None and unseen.numbers == {"pinned_layers": asked * 3 // 4}
    one = restart_fix(PINS, desk.sent, 1, PC, desk.plans)
    assert one is not None and one.sentence == "Start with 1 pinned layer"


def test_what_cannot_be_planned_is_not_offered(qwen: ModelShape) -> None:
    desk = _Desk(qwen, context_tokens=4096)
    smaller = machine(gib_bytes(128), gpu(24 * GIB, used=GIB), pin_measured=measured(5 * GIB))
    fix = restart_fix(PINS, desk.sent, 11, smaller, _Desk(qwen, smaller, context_tokens=4096).plans)
    assert fix is not None and fix.numbers == {"pinned_layers": 4}, "the quota is another one by now"
    assert restart_fix(PINS, desk.sent, 11, PC, lambda wishes: None) is None
    without = _Desk(qwen, machine(gib_bytes(128)), context_tokens=4096)
    assert restart_fix(PINS, without.sent, 0, PC, without.plans) is None, "nothing was to be pinned"


def test_after_the_gpu_was_full_less_of_it_is_planned(qwen: ModelShape) -> None:
    free = _Desk(qwen, context_tokens=4096, pinned_layers=0)
    fix = restart_fix(VRAM, free.sent, 0, PC, free.plans)
    assert fix is not None
    plan = free.plans(fix.numbers)
    assert plan is not None
    assert plan.pool_bytes(Pool.VRAM) < free.sent.pool_bytes(Pool.VRAM)
    assert plan.context_tokens == 4096
    assert fix.sentence == f"Start with {plan.layers_in(Tier.VRAM)} layers in VRAM"


def test_a_context_that_leaves_no_room_becomes_shorter(qwen: ModelShape) -> None:
    tight = machine(gib_bytes(128), gpu(9 * GIB), pin_measured=measured(30 * GIB))
    desk = _Desk(qwen, tight, context_tokens=40_960, pinned_layers=0)
    fix = restart_fix(VRAM.model_copy(update={"short_bytes": 3 * GIB}), desk.sent, 0, tight, desk.plans)
    assert fix is not None
    plan = desk.plans(fix.numbers)
    assert plan is not None and plan.context_tokens < 40_960
    assert fix.sentence == f"Start with {plan.context_tokens:,} tokens"
    assert desk.sent.pool_bytes(Pool.VRAM) - plan.pool_bytes(Pool.VRAM) > GIB


def test_other_causes_have_no_smaller_start(qwen: ModelShape) -> None:
    desk = _Desk(qwen, context_tokens=4096)
    for code, log in ((0xC000012D, ""), (-9, ""), (1, "DLL load failed")):
        assert restart_fix(explain_end(code, (log,)).problem, desk.sent, 5, PC, desk.plans) is None
