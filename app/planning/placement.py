"""Which layer gets which tier, once it is decided how many layers each tier gets."""

from collections import deque
from collections.abc import Mapping, Sequence

from engine.contract.plan import Tier


def place(layers: Sequence[int], counts: Mapping[Tier, int], forced: Mapping[int, Tier]) -> tuple[Tier, ...]:
    """Tiers in the order of `layers`. `counts` includes forced layers and sums up to all layers.

    From the ends of the model inwards: VRAM first, then pageable, then locked; pinned layers fill the middle.
    Why: pinned layers live from expert slots, and the miss rate of a layer's slots is U-shaped over the depth, so the
    first and last layers miss most (seen by other runtimes that cache experts). A layer in VRAM never misses, so it
    saves most at the ends; a layer on the CPU gives up its slots, which costs least at the ends. Because the order is
    fixed, moving the slider by one stop changes one layer in VRAM and leaves the others where they are.
    """
    left = {tier: counts.get(tier, 0) - list(forced.values()).count(tier) for tier in Tier}
    if min(left.values()) < 0 or sum(counts.values()) != len(layers):
        raise ValueError(f"{dict(counts)} cannot be given to {len(layers)} layers with {len(forced)} forced ones")
    tiers = dict(forced)
    for layer in from_the_ends([layer for layer in layers if layer not in forced]):
        tier = next(tier for tier in (Tier.VRAM, Tier.PAGEABLE, Tier.LOCKED, Tier.PINNED) if left[tier])
        tiers[layer] = tier
        left[tier] -= 1
    return tuple(tiers[layer] for layer in layers)


def from_the_ends(layers: Sequence[int]) -> list[int]:
    """The order in which layers are given their tiers: first, last, second, last but one, and so on."""
    rest = deque(layers)
    ordered: list[int] = []
    while rest:
        ordered.append(rest.popleft() if len(ordered) % 2 == 0 else rest.pop())
    return ordered
