"""Which expert is in which slot: a textbook LRU table. No torch, no bytes; engine/experts/transfer.py moves those."""

from collections import OrderedDict, defaultdict
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


@dataclass(slots=True)
class Uses:
    """How often experts of one layer were wanted, since the engine started."""

    hits: int = 0  # of single tokens: found in a slot
    misses: int = 0  # of single tokens: copied into a slot
    prompt_hits: int = 0  # of prompts: found in a slot
    prompt_copies: int = 0  # of prompts: brought to the GPU


class SlotTable:
    """Least recently used expert leaves first. All pinned layers share the slots."""

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"slots must be >= 1, got {slots}")
        self.slots = slots
        self.uses: defaultdict[int, Uses] = defaultdict(Uses)  # by layer
        self._held: OrderedDict[ExpertId, int] = OrderedDict()  # least recently used first
        self._free = list(range(slots - 1, -1, -1))

    def acquire(self, expert: ExpertId) -> Placed:
        """Find or make room for an expert and mark it as the most recently used."""
        slot = self._held.get(expert)
        if slot is not None:
            self._held.move_to_end(expert)
            self.uses[expert.layer].hits += 1
            return Placed(slot, hit=True)
        self.uses[expert.layer].misses += 1
        evicted: ExpertId | None = None
        if self._free:
            slot = self._free.pop()
        else:
            evicted, slot = self._held.popitem(last=False)
        self._held[expert] = slot
        return Placed(slot, hit=False, evicted=evicted)

    def touch(self, expert: ExpertId) -> bool:
        """Mark an expert as the most recently used if it is here; not counted as a use."""
        if expert not in self._held:
            return False
        self._held.move_to_end(expert)
        return True

    def find(self, expert: ExpertId) -> int | None:
        """The expert's slot, without any effect."""
        return self._held.get(expert)

    def offer(self, expert: ExpertId) -> int | None:
        """A free slot for an expert that is not here, as the first to leave again; None: all are taken."""
        if not self._free or expert in self._held:
            return None
        slot = self._held[expert] = self._free.pop()
        self._held.move_to_end(expert, last=False)
        return slot

    @property
    def hits(self) -> int:
        """Of single tokens, all layers."""
        return sum(one.hits for one in self.uses.values())

    @property
    def misses(self) -> int:
        """Of single tokens, all layers."""
        return sum(one.misses for one in self.uses.values())

    def forget(self, expert: ExpertId) -> None:
        """Empty the expert's slot, for example because its copy failed. Harmless if it has none."""
        slot = self._held.pop(expert, None)
        if slot is not None:
            self._free.append(slot)

    @property
    def free(self) -> int:
        """Slots that hold nothing."""
        return len(self._free)

    def held(self) -> dict[ExpertId, int]:
        """Experts and their slots, least recently used first."""
        return dict(self._held)
