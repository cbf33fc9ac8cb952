"""A new split for a running engine: what may change, and whether the change fits while it happens.

`PlanWish` is the body of POST /v1/plan where it is not a whole plan.
"""

from collections.abc import Iterable, Mapping

from pydantic import Field, ValidationError

from engine.contract.errors import NotEnoughMemoryError, PlanMismatchError
from engine.contract.estimate import Costs, Split, ledger, ring_host_bytes
from engine.contract.kv_types import kept_in
from engine.contract.ledger import DRIVER, HOST_RUNTIME, NOT_ENOUGH, TRANSFER_RING
from engine.contract.plan import LedgerLine, MemoryPlan, Pool, Tier
from engine.contract.record import Record, first_fault
from engine.contract.seats import Assignment, spare_bytes
from engine.contract.units import gib

KEPT = {  # fields of a plan that a running engine cannot change, in words
    "model_dir": "model folder",
    "model": "model",
    "device": "device",
    "gpu_uuid": "GPU",
    "simulated": "simulated GPU",
}
RESTART = "Start the engine again with this split."


class PlanWish(Record):
    """The fields of a plan that a running engine can change; None: as it is."""

    context_tokens: int | None = Field(default=None, gt=0, strict=True)
    prefill_chunk: int | None = Field(default=None, gt=0, strict=True)
    expert_slots: int | None = Field(default=None, ge=0, strict=True)
    ring_experts: int | None = Field(default=None, ge=0, strict=True)
    ring_staged: bool | None = None
    tiers: tuple[Tier, ...] | None = None


class MovePeak(Record):
    """Bytes that a change takes beside what is held before it, by pool, until it is over."""

    host_bytes: int = Field(ge=0, description="new host blocks, and one to exchange places through")
    pinned_bytes: int = Field(ge=0)
    locked_bytes: int = Field(ge=0)


def changed_plan(plan: MemoryPlan, wish: PlanWish) -> MemoryPlan:
    """The plan with a wish, its ledger computed anew; limits and reserves stay those of `plan`.

    Raises:
        PlanMismatchError: the wish is no possible plan of this model.
        NotEnoughMemoryError: a pool is too small; the subclass names it.
    """
    changes = {name: value for name, value in wish if value is not None}
    new = plan.model_copy(update={**changes, "load_peak": {}})
    if len(new.tiers) != len(plan.model.moe_layers):
        raise PlanMismatchError(
            f"{len(new.tiers)} tiers were given; {plan.model.name} has {len(plan.model.moe_layers)} layers of experts.",
            "Name one tier for each of them.",
            tiers=len(new.tiers),
            moe_layers=len(plan.model.moe_layers),
        )
    new = new.model_copy(update={"ledger": _ledger(new)})
    check_change(plan, new)
    return new


def check_change(old: MemoryPlan, new: MemoryPlan) -> None:
    """Whether a running engine can take a plan at all: same model, same device, possible, and within its budgets.

    Raises:
        PlanMismatchError: another model, type of the KV cache or device, more context than the model can, or a ledger
            that is not that of the split.
        NotEnoughMemoryError: a pool is too small; the subclass names it.
    """
    if old.kv_dtype != new.kv_dtype and kept_in(old.model, None) == kept_in(new.model, None):
        raise PlanMismatchError(
            f"The engine keeps keys and values in {old.kv_dtype}; the plan is for {new.kv_dtype}.", RESTART
        )
    for name, what in KEPT.items():
        if getattr(old, name) != getattr(new, name):
            raise PlanMismatchError(f"The plan is for another {what} than the engine runs.", RESTART)
    try:
        MemoryPlan.model_validate(new.model_copy(update={"budgets": {}}).model_dump())
    except ValidationError as cause:
        raise PlanMismatchError(
            f"The plan is not possible: {first_fault(cause).words}.", "Plan the start again."
        ) from cause
    if new.context_tokens > new.model.max_context_tokens:
        raise PlanMismatchError(
            f"{new.model.name} can have a context of {new.model.max_context_tokens:,} tokens; "
            f"{new.context_tokens:,} were asked for.",
            "Choose a shorter context.",
            context_tokens=new.context_tokens,
            max_context_tokens=new.model.max_context_tokens,
        )
    if _sorted(new.ledger) != _sorted(_ledger(new)):
        raise PlanMismatchError("The ledger of the plan is not that of its split.", "Plan the start again.")
    for pool, budget in new.budgets.items():
        planned = new.pool_bytes(pool)
        if budget is not None and planned > budget:
            raise _too_much(pool, planned, budget, "This split", "Choose a split that takes less of it.")


def move_peak(old: MemoryPlan, new: MemoryPlan, assignments: Iterable[Assignment]) -> MovePeak:
    """What a change takes beside what is held. VRAM never holds more than the larger of the two splits, and a transfer
    ring of another size beside the old one."""
    made = list(assignments)
    more = _beside_bytes(new) - _beside_bytes(old)
    ring = ring_host_bytes(new.model, new) if ring_of(new) != ring_of(old) else 0
    blocks = sum(item.new_host_bytes for item in made) + spare_bytes(made)
    return MovePeak(
        host_bytes=blocks + max(more, 0) + ring,
        pinned_bytes=sum(item.new_bytes(Tier.PINNED) for item in made) + ring,
        locked_bytes=sum(item.new_bytes(Tier.LOCKED) for item in made),
    )


def ring_of(plan: MemoryPlan) -> tuple[int, bool]:
    """What makes a transfer ring another one."""
    return plan.ring_experts, plan.ring_staged


def _beside_bytes(plan: MemoryPlan) -> int:
    """Host memory of everything but layers and ring; what grows of it is given back before it is had anew."""
    apart = ("pinned layers", "locked layers", TRANSFER_RING)
    return sum(line.bytes for line in plan.ledger if line.pool is Pool.RAM and line.what not in apart)


def check_peak(new: MemoryPlan, held: Mapping[Pool, int], peak: MovePeak) -> None:
    """Whether there is room to move: what is held now and what the change takes beside it, within the new budgets.

    Raises:
        NotEnoughMemoryError: there is not; the subclass names the pool. Nothing has been moved.
    """
    beside = {
        Pool.RAM: peak.host_bytes,
        Pool.COMMIT: peak.host_bytes,
        Pool.PINNED: peak.pinned_bytes,
        Pool.LOCKED: peak.locked_bytes,
    }
    for pool, extra in beside.items():
        budget = new.budgets.get(pool)
        needed = held.get(pool, 0) + extra
        if extra and budget is not None and needed > budget:
            raise _too_much(pool, needed, budget, "Moving the layers while the engine runs", RESTART)


def _too_much(pool: Pool, needed: int, available: int, what: str, fix: str) -> NotEnoughMemoryError | PlanMismatchError:
    error = NOT_ENOUGH.get(pool)
    if error is None:  # pageable memory has no limit of its own, only what the user allows
        return PlanMismatchError(f"{what} needs {gib(needed)} of pageable memory; {gib(available)} is allowed.", fix)
    return error(needed_bytes=needed, available_bytes=available, fix=fix, what=what)


def _ledger(plan: MemoryPlan) -> tuple[LedgerLine, ...]:
    on_gpu = plan.device != "cpu"
    split = Split(
        context_tokens=plan.context_tokens,
        prefill_chunk=plan.prefill_chunk,
        expert_slots=plan.expert_slots,
        tiers=plan.tiers,
        on_gpu=on_gpu,
        ring_experts=plan.ring_experts,
        ring_staged=plan.ring_staged,
    )
    return ledger(plan.model, split, _costs(plan))


def _costs(plan: MemoryPlan) -> Costs:
    lines = {(line.pool, line.what): line.bytes for line in plan.ledger}
    return Costs(
        context_bytes=lines.get((Pool.VRAM, DRIVER), 0),
        host_runtime_bytes=lines.get((Pool.COMMIT, HOST_RUNTIME), 0),
    )


def _sorted(lines: tuple[LedgerLine, ...]) -> list[tuple[str, str, int]]:
    return sorted((line.pool.value, line.what, line.bytes) for line in lines)
