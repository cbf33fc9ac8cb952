"""From model, machine and wishes to the one plan of a launch, or to an error with a fix that works."""

from app.planning.counts import Counts, Room, Shortage
from app.planning.fixes import smallest_fix
from app.planning.placement import place
from app.planning.wishes import Wishes
from engine.contract.errors import (
    NotEnoughCommitError,
    NotEnoughMemoryError,
    NotEnoughRamError,
    NotEnoughVramError,
    PinQuotaError,
)
from engine.contract.estimate import Split, ledger
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, Pool
from engine.contract.shape import ModelShape

_ERRORS: dict[Pool, type[NotEnoughMemoryError]] = {
    Pool.VRAM: NotEnoughVramError,
    Pool.PINNED: PinQuotaError,
    Pool.RAM: NotEnoughRamError,
    Pool.COMMIT: NotEnoughCommitError,
}


def make_plan(shape: ModelShape, facts: HardwareFacts, wishes: Wishes, *, model_dir: str) -> MemoryPlan:
    """Decide where every byte of a launch goes.

    KV cache and dense weights first, then whole layers into VRAM, then expert slots, then pins up to the quota; the
    rest is locked. What the user fixed is kept; a wish that does not fit is refused, never bent. Without a GPU all
    layers are locked. A context is rounded up to whole pages and ends at the model's maximum; a number of pinned
    layers above the layers outside VRAM means all of them.

    Raises:
        NotEnoughMemoryError: a pool is too small; `fix` is the smallest single change that was found to work.
        UsageError: wishes that contradict each other or the model.
    """
    room = Room(shape, facts, wishes)
    try:
        asked = wishes.context_tokens
        tokens = room.default_tokens() if asked is None else room.rounded(asked)
        return _plan(room, room.counts(tokens), model_dir)
    except Shortage as short:
        fix, numbers = smallest_fix(room, short)
        error = _ERRORS[short.pool](
            needed_bytes=short.needed_bytes, available_bytes=short.available_bytes, fix=fix, what=short.what
        )
        error.numbers.update(numbers)
        raise error from short


def _plan(room: Room, counts: Counts, model_dir: str) -> MemoryPlan:
    shape, facts, wishes, device = room.shape, room.facts, room.wishes, room.budgets.device
    tiers = place(shape.moe_layers, counts.by_tier(), wishes.forced)
    split = Split(
        context_tokens=counts.context_tokens,
        prefill_chunk=wishes.prefill_chunk,
        expert_slots=counts.expert_slots,
        tiers=tiers,
        on_gpu=room.on_gpu,
    )
    return MemoryPlan(
        model_dir=model_dir,
        model=shape,
        device=device,
        gpu_uuid=facts.cuda_gpu.uuid if device == "cuda" and facts.cuda_gpu is not None else None,
        simulated=wishes.simulated_gpu,
        context_tokens=counts.context_tokens,
        prefill_chunk=wishes.prefill_chunk,
        expert_slots=counts.expert_slots,
        tiers=tiers,
        ledger=ledger(shape, split, room.budgets.costs),
        budgets=room.budgets.by_pool(),
    )
