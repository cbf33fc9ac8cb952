"""What to start with after an engine ended for want of memory: the smallest change, planned before it is offered."""

from collections.abc import Callable
from typing import Any

from app.planning.budgets import budgets
from app.planning.terms import layers
from app.planning.wishes import Wishes
from engine.contract.errors import FixOption, Problem
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.units import MIB

START_WITH = "start_with"  # the kind of change
Plans = Callable[[dict[str, Any]], MemoryPlan | None]

_CAUSES = {  # what an engine says itself, in the words for what its log or exit code says
    "pin_refused": "pinned",
    "pin_quota": "pinned",
    "vram": "vram",
    "commit": "commit_limit",
    "ram": "ram",
    "port": "port",
    "model_changed": "model_changed",
}
_LEAST_LESS_BYTES = 512 * MIB  # where the engine does not say how much was missing
_SHARES = ((3, 4), (1, 2), (1, 4), (0, 1))


def cause_of(problem: Problem) -> str:
    """Why the engine ended: "pinned", "vram", "commit_limit", "ram", "dll_missing", ...; "" if nobody knows."""
    cause = problem.numbers.get("cause")
    return cause if isinstance(cause, str) else _CAUSES.get(problem.kind, "")


def restart_fix(
    problem: Problem, sent: MemoryPlan, pinned_before: int, facts: HardwareFacts, plans: Plans
) -> FixOption | None:
    """A start that avoids what ended the engine; None where none is known, or where trying again is the best.

    Args:
        sent: the plan it ended with.
        pinned_before: layers that it had pinned by then.
        facts: the machine now, without the engine.
        plans: the plan under these wishes instead of the user's; None where there is none.
    """
    match cause_of(problem):
        case "pinned":
            return _fewer_pins(sent, pinned_before, plans)
        case "vram":
            return _less_vram(problem, sent, facts, plans)
        case _:
            return None


def _fewer_pins(sent: MemoryPlan, pinned_before: int, plans: Plans) -> FixOption | None:
    """As many as could be pinned; where nobody saw how many, three quarters of what was asked for."""
    asked = sent.layers_in(Tier.PINNED)
    most = pinned_before if 0 < pinned_before < asked else asked * 3 // 4
    for count in range(most, -1, -1) if asked else ():
        plan = plans({"pinned_layers": count})
        if plan is not None and plan.layers_in(Tier.PINNED) <= count:
            sentence = f"Start with {layers(count).replace(' ', ' pinned ')}"
            return FixOption(change=START_WITH, sentence=sentence, numbers={"pinned_layers": count})
    return None


def _less_vram(problem: Problem, sent: MemoryPlan, facts: HardwareFacts, plans: Plans) -> FixOption | None:
    """What fits if a little more of the GPU is left alone; fewer tokens where the user has fixed them too high."""
    if sent.device != "cuda":
        return None
    budget = budgets(facts, Wishes()).vram
    reserve = next((-term.bytes for term in budget.terms if term.what == "reserve"), 0)
    most = sent.pool_bytes(Pool.VRAM) - max(problem.short_bytes or 0, _LEAST_LESS_BYTES)
    more = reserve + max((budget.bytes or 0) - most, 0)
    wishes: list[dict[str, Any]] = [{"vram_reserve_bytes": more}]
    wishes += [
        {"vram_reserve_bytes": more, "context_tokens": max(sent.context_tokens * part // of, 1)} for part, of in _SHARES
    ]
    for changed in wishes:
        plan = plans(changed)
        if plan is not None and plan.pool_bytes(Pool.VRAM) < sent.pool_bytes(Pool.VRAM):
            return FixOption(change=START_WITH, sentence=f"Start with {_smaller(sent, plan)}", numbers=changed)
    return None


def _smaller(sent: MemoryPlan, plan: MemoryPlan) -> str:
    """What is less in the second plan, in words."""
    if plan.context_tokens < sent.context_tokens:
        return f"{plan.context_tokens:,} tokens"
    if plan.layers_in(Tier.VRAM) < sent.layers_in(Tier.VRAM):
        return f"{layers(plan.layers_in(Tier.VRAM))} in VRAM"
    return f"{plan.expert_slots:,} expert slots"
