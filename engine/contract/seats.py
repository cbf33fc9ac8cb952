"""Which memory each moving layer gets when a split changes: pure, no bytes are touched.

A seat is the memory of one bank: a host block that is pinned, locked or pageable, or bytes in VRAM. Layers that stay
in their tier keep their seat. A layer that arrives in a tier takes the seat of one that leaves it, so that memory is
pinned or locked only where a tier grows, and given back only where it shrinks: with banks of one size the sum that is
pinned never passes the larger of the two plans. The engine moves by it, and the launcher foretells by it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.contract.plan import Tier

HOST_TIERS = (Tier.PINNED, Tier.LOCKED, Tier.PAGEABLE)


Seated = tuple[int, Tier, Tier, int]  # layer, the tier it was asked for, the one it settled in, bytes of its bank


@dataclass(frozen=True, slots=True)
class Mover:
    """One layer that changes its tier."""

    layer: int
    from_tier: Tier
    to_tier: Tier
    nbytes: int


def movers(seated: Iterable[Seated], tiers: Mapping[int, Tier]) -> list[Mover]:
    """The layers that change their memory where `tiers` are asked for, by layer.

    One that is asked for the same tier as before stays where it is, also if it had fallen.
    """
    return [
        Mover(layer, settled, tiers[layer], nbytes)
        for layer, asked, settled, nbytes in sorted(seated)
        if tiers.get(layer, asked) is not asked and tiers[layer] is not settled
    ]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A host seat that stays and becomes another tier; `owner` is the layer that had it."""

    owner: int
    from_tier: Tier
    to_tier: Tier
    nbytes: int


@dataclass(slots=True)
class Assignment:
    """Who sits where afterwards, for banks of one size. A layer that is in none of these keeps its seat."""

    nbytes: int
    takes: dict[int, int] = field(default_factory=dict)  # layer to the layer whose seat it takes; maybe its own
    new: dict[int, Tier] = field(default_factory=dict)  # layer to the tier of a seat to be made
    conversions: list[Conversion] = field(default_factory=list)
    released: dict[int, Tier] = field(default_factory=dict)  # layer whose old seat nobody takes

    @property
    def new_on_device(self) -> bool:
        """Whether VRAM must be had before the layers can move; then none is given back."""
        return Tier.VRAM in self.new.values()

    @property
    def needs_spare(self) -> bool:
        """Whether layers exchange seats in a ring, so that one of them has to stand aside for a moment."""
        return any(self._ring(layer) for layer in self.takes)

    def _ring(self, start: int) -> bool:
        layer = self.takes[start]
        if layer == start:
            return False
        while layer in self.takes and layer != start:
            following = self.takes[layer]
            if following == layer:
                return False
            layer = following
        return layer == start

    def new_bytes(self, tier: Tier) -> int:
        """Bytes of seats that are made in a tier, converted ones included."""
        made = list(self.new.values()).count(tier) + sum(item.to_tier is tier for item in self.conversions)
        return made * self.nbytes

    @property
    def work_bytes(self) -> int:
        """Bytes that are gone through: of blocks that are made, of those that are pinned or locked, of copies."""
        held = self.new_bytes(Tier.PINNED) + self.new_bytes(Tier.LOCKED)
        copies = len(self.new) + sum(owner != layer for layer, owner in self.takes.items())
        return self.new_host_bytes + held + copies * self.nbytes

    @property
    def new_host_bytes(self) -> int:
        """Bytes of new host blocks."""
        return sum(tier is not Tier.VRAM for tier in self.new.values()) * self.nbytes


def assign(movers: list[Mover]) -> list[Assignment]:
    """One assignment for each size of bank."""
    by_size: defaultdict[int, list[Mover]] = defaultdict(list)
    for mover in movers:
        by_size[mover.nbytes].append(mover)
    return [_assign(size, group) for size, group in sorted(by_size.items())]


def _assign(nbytes: int, movers: list[Mover]) -> Assignment:
    made = Assignment(nbytes)
    needed: dict[Tier, list[int]] = {tier: [] for tier in Tier}
    vacated: dict[Tier, list[int]] = {tier: [] for tier in Tier}
    for mover in movers:
        needed[mover.to_tier].append(mover.layer)
        vacated[mover.from_tier].append(mover.layer)
    for mover in movers:  # in place where the tiers change their sizes that way: nothing is copied
        source, target = mover.from_tier, mover.to_tier
        if Tier.VRAM not in (source, target) and _shrinks(needed, vacated, source) and _grows(needed, vacated, target):
            _convert(made, needed, vacated, mover.layer, mover.layer, source, target)
    for tier in Tier:
        for layer, owner in list(zip(needed[tier], vacated[tier], strict=False)):
            made.takes[layer] = owner
            needed[tier].remove(layer)
            vacated[tier].remove(owner)
    for target in HOST_TIERS:
        for source in HOST_TIERS:
            while needed[target] and vacated[source]:
                _convert(made, needed, vacated, needed[target][0], vacated[source][0], source, target)
    made.new = {layer: tier for tier, layers in needed.items() for layer in layers}
    made.released = {layer: tier for tier, layers in vacated.items() for layer in layers}
    return made


_Lists = Mapping[Tier, list[int]]


def _shrinks(needed: _Lists, vacated: _Lists, tier: Tier) -> bool:
    return len(vacated[tier]) > len(needed[tier])


def _grows(needed: _Lists, vacated: _Lists, tier: Tier) -> bool:
    return len(needed[tier]) > len(vacated[tier])


def _convert(
    made: Assignment, needed: _Lists, vacated: _Lists, layer: int, owner: int, source: Tier, target: Tier
) -> None:
    made.takes[layer] = owner
    made.conversions.append(Conversion(owner, source, target, made.nbytes))
    needed[target].remove(layer)
    vacated[source].remove(owner)


def spare_bytes(made: Iterable[Assignment]) -> int:
    """One bank to stand aside, where layers exchange places."""
    return max((item.nbytes for item in made if item.needs_spare), default=0)
