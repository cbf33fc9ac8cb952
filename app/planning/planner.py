"""From model, machine and wishes to the one plan of a launch, or to an error with a fix that works."""

from collections.abc import Sequence

from app.planning.counts import Counts, counts, default_tokens
from app.planning.fixes import fixes, last_resort
from app.planning.held import Held
from app.planning.others import Program
from app.planning.placement import place
from app.planning.refused import Refused
from app.planning.room import Room
from app.planning.shortage import Shortage
from app.planning.wishes import Wishes
from engine.contract.errors import NotEnoughMemoryError
from engine.contract.estimate import Split, ledger
from engine.contract.facts import HardwareFacts
from engine.contract.ledger import NOT_ENOUGH
from engine.contract.plan import MemoryPlan
from engine.contract.shape import ModelShape


def make_plan(
    shape: ModelShape,
    facts: HardwareFacts,
    wishes: Wishes,
    *,
    model_dir: str,
    held: Sequence[Held] = (),
    programs: Sequence[Program] = (),
) -> MemoryPlan:
    """Decide where every byte of a launch goes.

    KV cache and dense weights first, then whole layers into VRAM, then expert slots, then pins up to the quota; the
    rest is locked. What the user fixed is kept; a wish that does not fit is refused, never bent. Without a GPU all
    layers are locked. A context is rounded up to whole pages and ends at the model's maximum; a number of pinned
    layers above the layers outside VRAM means all of them. RAM and commit must also hold the peak of the load.

    `held`: left-over processes that could be ended; ending one is offered where that is enough. `programs`: what else
    holds memory, to be named where closing it is the fix.

    Raises:
        NotEnoughMemoryError: a pool is too small; `fixes` are changes that work, `fix` the smallest of them.
        UsageError: wishes that contradict each other or the model.
    """
    room = Room(shape, facts, wishes)
    try:
        asked = wishes.context_tokens
        tokens = default_tokens(room) if asked is None else room.rounded(asked)
        return _plan(room, counts(room, tokens), model_dir)
    except Shortage as short:
        raise _refusal(Refused(room, short, held, programs)) from short


def _refusal(refused: Refused) -> NotEnoughMemoryError:
    short, found = refused.short, fixes(refused)
    error = NOT_ENOUGH[short.pool](
        needed_bytes=short.needed_bytes,
        available_bytes=short.available_bytes,
        fix=found[0].sentence if found else last_resort(short.pool),
        what=short.what,
    )
    error.fixes = found
    error.numbers.update(found[0].numbers if found else {})
    return error


def _plan(room: Room, found: Counts, model_dir: str) -> MemoryPlan:
    shape, facts, wishes, device = room.shape, room.facts, room.wishes, room.budgets.device
    tiers = place(shape.moe_layers, found.by_tier(), wishes.forced)
    split = Split(
        context_tokens=found.context_tokens,
        prefill_chunk=wishes.prefill_chunk,
        expert_slots=found.expert_slots,
        tiers=tiers,
        on_gpu=room.on_gpu,
        ring_experts=found.ring_experts,
        ring_staged=found.ring_staged,
    )
    return MemoryPlan(
        model_dir=model_dir,
        model=shape,
        device=device,
        gpu_uuid=facts.cuda_gpu.uuid if device == "cuda" and facts.cuda_gpu is not None else None,
        simulated=wishes.simulated_gpu,
        context_tokens=found.context_tokens,
        prefill_chunk=wishes.prefill_chunk,
        expert_slots=found.expert_slots,
        ring_experts=found.ring_experts,
        ring_staged=found.ring_staged,
        tiers=tiers,
        ledger=ledger(shape, split, room.budgets.costs),
        budgets=room.budgets.by_pool(),
        load_peak=dict(found.load_peak),
    )
