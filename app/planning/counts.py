"""How many layers each tier gets for a context: KV first, then whole layers in VRAM, then slots, pins, and locks.

Integers only, so that the slider can ask for every stop at once. `planner` turns a result into a plan, a `Shortage`
into an error with fixes. Limits of the machine that do not depend on the split are in `Room`.
"""

from dataclasses import dataclass

from app.planning.room import Room
from app.planning.shortage import Shortage
from app.planning.terms import layers
from engine.contract.errors import UsageError
from engine.contract.estimate import KV_PAGE_TOKENS
from engine.contract.plan import Pool, Tier


@dataclass(frozen=True, slots=True)
class Counts:
    """The decision in numbers; `load_peak` is the most RAM and commit the load holds at one moment."""

    context_tokens: int
    vram_layers: int
    pinned_layers: int
    locked_layers: int
    pageable_layers: int
    expert_slots: int
    ring_experts: int = 0
    ring_staged: bool = False
    load_peak: tuple[tuple[Pool, int], ...] = ()

    def by_tier(self) -> dict[Tier, int]:
        return {
            Tier.VRAM: self.vram_layers,
            Tier.PINNED: self.pinned_layers,
            Tier.LOCKED: self.locked_layers,
            Tier.PAGEABLE: self.pageable_layers,
        }


def default_tokens(room: Room) -> int:
    """Without a wish: on a GPU the longest context that keeps most layers in VRAM; without one a usual length.

    Raises:
        Shortage: not even one page of tokens fits.
    """
    if not room.on_gpu:
        return min(room.usual_tokens, room.longest_tokens())
    wish = room.wishes.vram_layers
    for vram in range(room.most_vram, room.least_vram - 1, -1) if wish is None else (wish,):
        if room.tokens_for(vram) >= room.least_tokens:
            return room.tokens_for(vram)
    few = room.tokens_for(room.least_vram if wish is None else wish)
    if few < 1:
        counts(room, room.rounded(KV_PAGE_TOKENS))  # says what is short
    return max(few, room.rounded(KV_PAGE_TOKENS))


def counts(room: Room, tokens: int) -> Counts:
    """The split for an allocated context.

    Raises:
        Shortage: a pool is too small.
        UsageError: wishes that contradict each other.
    """
    sums = room.sums
    vram = _vram_layers(room, tokens) if room.on_gpu else _no_vram_layers(room)
    pinned = _checked_pins(room, vram)
    outer = vram - sums.forced_count[Tier.VRAM]  # free layers in VRAM; pageable ones lie behind them
    pageable = _beyond_locks(room, outer, pinned)
    pageable = _beyond_ram(room, tokens, outer, pinned, pageable)
    pinned = min(pinned, sums.free - outer - pageable + sums.forced_count[Tier.PINNED])
    resident, committed = _on_host(room, outer, pageable)
    _check_commit(room, tokens, committed, vram)
    experts = (room.vram_left(tokens) - room.in_vram(vram)) // room.slot if room.on_gpu else 0
    ring = room.ring if room.ring_fits(experts, pinned=pinned > 0) else 0
    staged = ring > 0 and room.layers - vram - pinned > 0 and room.stages(_pinned_bytes(room, pinned))
    ring = ring if pinned or staged else 0
    slots = min(experts - ring, pinned * room.shape.experts.n_experts)
    pageable += sums.forced_count[Tier.PAGEABLE]
    return Counts(
        context_tokens=tokens,
        vram_layers=vram,
        pinned_layers=pinned,
        locked_layers=room.layers - vram - pinned - pageable,
        pageable_layers=pageable,
        expert_slots=slots,
        ring_experts=ring,
        ring_staged=staged,
        load_peak=tuple(room.load_peak(tokens, resident, committed, any_vram=vram > 0).items()),
    )


def _vram_layers(room: Room, tokens: int) -> int:
    """As many whole layers as VRAM holds beside the context, or the user's number if it fits."""
    left = room.vram_left(tokens)
    wish = _vram_wish(room)
    least, most = room.least_vram if wish is None else wish, room.most_vram
    if left < room.vram_need(least):
        whole = room.budgets.vram.bytes or 0
        what = f"A context of {tokens:,} tokens" + (f" with {layers(least)} in VRAM" if least else "")
        raise Shortage(Pool.VRAM, whole - left + room.vram_need(least), whole, what)
    if wish is not None:
        return wish
    sums = room.sums
    vram = min(most, sums.forced_count[Tier.VRAM] + sums.most_outer(left - sums.forced[Tier.VRAM]))
    while room.vram_need(vram) > left:
        vram -= 1
    return vram


def _no_vram_layers(room: Room) -> int:
    if wish := _vram_wish(room):
        raise Shortage(Pool.VRAM, room.in_vram(wish), 0, f"{layers(wish)} in VRAM")
    return 0


def _vram_wish(room: Room) -> int | None:
    """The user's number of layers in VRAM.

    Raises:
        UsageError: forced layers leave fewer, or there are more of them.
    """
    wish, least, most = room.wishes.vram_layers, room.least_vram, room.most_vram
    if wish is not None and not least <= wish <= most:
        raise UsageError(
            f"{layers(wish)} in VRAM asked for; {least} to {most} are possible.",
            f"Choose {min(max(wish, least), most)}.",
        )
    return wish


def _checked_pins(room: Room, vram: int) -> int:
    """`room.pins`; a wish for more than the quota is refused, one for more than there are layers takes them all."""
    pinned, quota, sums = room.pins(vram), room.budgets.quota.bytes, room.sums
    forced = sums.forced_count[Tier.PINNED]
    asked = max(room.wishes.pinned_layers or 0, forced) if room.on_gpu else 0
    needed = _pinned_bytes(room, asked)
    if quota is not None and asked and needed > quota:
        raise Shortage(Pool.PINNED, needed, quota, f"Pinning {layers(asked)}")
    if forced > pinned:
        raise UsageError(
            f"{layers(forced)} forced to be pinned; the limit is {pinned}.",
            "Raise the number of pinned layers, or clear the forced layers.",
        )
    return pinned


def _pinned_bytes(room: Room, pinned: int) -> int:
    """Bytes of so many pinned layers, the forced ones among them."""
    sums = room.sums
    inner = min(max(pinned - sums.forced_count[Tier.PINNED], 0), sums.free)
    return sums.forced[Tier.PINNED] + sums.inner(inner)


def _beyond_locks(room: Room, outer: int, pinned: int) -> int:
    """Free layers that the limit for locked memory leaves pageable, from the outermost inwards.

    Raises:
        Shortage: the layers that are forced to be locked exceed it.
    """
    limit, sums = room.budgets.locked.bytes, room.sums
    if limit is None:
        return 0
    if (forced := sums.forced[Tier.LOCKED]) > limit:
        raise Shortage(Pool.LOCKED, forced, limit, f"Locking {layers(sums.forced_count[Tier.LOCKED])}")
    inner = pinned - sums.forced_count[Tier.PINNED]
    locked = sums.free - outer - inner
    excess = sums.forced[Tier.LOCKED] + sums.outer(outer + locked) - sums.outer(outer) - limit
    return 0 if excess <= 0 else min(sums.least_after(outer, excess), locked)


def _beyond_ram(room: Room, tokens: int, outer: int, pinned: int, pageable: int) -> int:
    """`pageable`, and the free layers that RAM cannot hold and that may be pageable instead.

    Raises:
        Shortage: they may not, or that would not help; the user's number of pinned layers is kept.
    """
    limit, sums = room.budgets.ram.bytes, room.sums
    resident, committed = _on_host(room, outer, pageable)
    any_vram = outer + sums.forced_count[Tier.VRAM] > 0
    needed = room.needed(Pool.RAM, tokens, resident, committed, any_vram=any_vram)
    if limit is None or needed <= limit:
        return pageable
    kept = 0 if room.wishes.pinned_layers is None else pinned - sums.forced_count[Tier.PINNED]
    movable = sums.free - outer - pageable - kept
    more = sums.least_after(outer + pageable, needed - limit)
    if room.wishes.allow_pageable and more <= movable:
        resident, committed = _on_host(room, outer, pageable + more)
        if room.needed(Pool.RAM, tokens, resident, committed, any_vram=any_vram) <= limit:
            return pageable + more
    raise Shortage(Pool.RAM, needed, limit)


def _check_commit(room: Room, tokens: int, committed: int, vram: int) -> None:
    limit = room.budgets.commit.bytes
    needed = room.needed(Pool.COMMIT, tokens, committed, committed, any_vram=vram > 0)
    if limit is not None and needed > limit:
        raise Shortage(Pool.COMMIT, needed, limit)


def _on_host(room: Room, outer: int, pageable: int) -> tuple[int, int]:
    """Bytes of the pinned and locked banks, and of all banks outside VRAM."""
    sums = room.sums
    committed = sums.total - sums.forced[Tier.VRAM] - sums.outer(outer)
    paged = sums.forced[Tier.PAGEABLE] + sums.outer(outer + pageable) - sums.outer(outer)
    return committed - paged, committed
