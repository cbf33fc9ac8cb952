"""Bytes of the first or last so many layers in the order in which layers get their tiers.

Banks may differ in size, so a number of layers alone has no bytes; but the order is fixed (see placement), so which
layers they are is known from their number, and their bytes are a difference of two sums.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from app.planning.placement import from_the_ends
from engine.contract.plan import Tier


class BankSums:
    """Free layers are those the user forced nowhere, from the ends of the model inwards."""

    def __init__(self, layers: Sequence[int], sizes: Sequence[int], forced: Mapping[int, Tier]) -> None:
        """`sizes[i]` is the bank of `layers[i]`."""
        size_of = dict(zip(layers, sizes, strict=True))
        order = from_the_ends([layer for layer in layers if layer not in forced])
        self._sums = [0, *accumulate(size_of[layer] for layer in order)]
        self._from_inside = [0, *accumulate(size_of[layer] for layer in reversed(order))]
        self.forced = dict.fromkeys(Tier, 0)
        self.forced_count = dict.fromkeys(Tier, 0)
        for layer, tier in forced.items():
            self.forced[tier] += size_of.get(layer, 0)
            self.forced_count[tier] += 1
        self.free = len(order)
        self.total = sum(sizes)
        self.largest = max(sizes, default=0)

    def outer(self, count: int) -> int:
        """Bytes of the `count` outermost free layers."""
        return self._sums[count]

    def inner(self, count: int) -> int:
        """Bytes of the `count` innermost free layers."""
        return self._from_inside[count]

    def most_outer(self, limit_bytes: int) -> int:
        """How many of the outermost free layers fit; -1 if the limit is below zero."""
        return bisect_right(self._sums, limit_bytes) - 1

    def most_inner(self, limit_bytes: int) -> int:
        """How many of the innermost free layers fit; -1 if the limit is below zero."""
        return bisect_right(self._from_inside, limit_bytes) - 1

    def least_after(self, start: int, least_bytes: int) -> int:
        """How many free layers from place `start` inwards have so many bytes; more than there are if all have fewer."""
        return bisect_left(self._sums, self._sums[start] + least_bytes) - start
