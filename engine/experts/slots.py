"""Which expert is in which slot: a textbook LRU table. No torch, no bytes; engine/experts/transfer.py moves those."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple


class ExpertId(NamedTuple):
    """One routed expert of the model."""

    layer: int
    expert: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Answer of `SlotTable.acquire`: on a miss the caller fills the slot; `evicted` is what was in it."""

    slot: int
    hit: bool
    evicted: ExpertId | None = None


class SlotTable:
    """Least recently used expert leaves first. All pinned layers share the slots."""

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"slots must be >= 1, got {slots}")
        self.slots = slots
        self.hits = 0
        self.misses = 0
        self._held: OrderedDict[ExpertId, int] = OrderedDict()  # least recently used first
        self._free = list(range(slots - 1, -1, -1))

    def acquire(self, expert: ExpertId) -> Placed:
        """Find or make room for an expert and mark it as the most recently used."""
        slot = self._held.get(expert)
        if slot is not None:
            self._held.move_to_end(expert)
            self.hits += 1
            return Placed(slot, hit=True)
        self.misses += 1
        evicted: ExpertId | None = None
        if self._free:
            slot = self._free.pop()
        else:
            evicted, slot = self._held.popitem(last=False)
        self._held[expert] = slot
        return Placed(slot, hit=False, evicted=evicted)

    def forget(self, expert: ExpertId) -> None:
        """Empty the expert's slot, for example because its copy failed. Harmless if it has none."""
        slot = self._held.pop(expert, None)
        if slot is not None:
            self._free.append(slot)

    def held(self) -> dict[ExpertId, int]:
        """Experts and their slots, least recently used first."""
        return dict(self._held)
