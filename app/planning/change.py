"""From the split that runs to another one: what moves, and whether the engine can take it without a start. Pure."""

from collections import defaultdict
from dataclasses import dataclass

from engine.contract.errors import Problem, SplitpinError
from engine.contract.ledger import KV_CACHE
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.plan_change import KEPT, RESTART, check_change, check_peak, move_peak
from engine.contract.residency import ResidencyReport
from engine.contract.seats import Mover, assign, movers

_SPLIT = ("tiers", "context_tokens", "prefill_chunk", "expert_slots", "ring_experts", "ring_staged")


@dataclass(frozen=True, slots=True)
class Move:
    """Layers that go from one tier to another, and the bytes of their experts."""

    from_tier: Tier
    to_tier: Tier
    layers: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Change:
    """What differs; pairs are before and after. `moves` come in the order of the tiers."""

    moves: tuple[Move, ...]
    context_tokens: tuple[int, int]
    kv_bytes: tuple[int, int]
    expert_slots: tuple[int, int]

    @property
    def layers(self) -> int:
        """How many layers move."""
        return sum(move.layers for move in self.moves)

    @property
    def to_vram_bytes(self) -> int:
        """Of the layers that go into VRAM."""
        return sum(move.bytes for move in self.moves if move.to_tier is Tier.VRAM)

    @property
    def from_vram_bytes(self) -> int:
        """Of the layers that leave it."""
        return sum(move.bytes for move in self.moves if move.from_tier is Tier.VRAM)

    @property
    def within_ram_bytes(self) -> int:
        """Of the layers that are held in another way in RAM; most of them stay where they are."""
        return sum(move.bytes for move in self.moves if Tier.VRAM not in (move.from_tier, move.to_tier))


def same_split(one: MemoryPlan, other: MemoryPlan) -> bool:
    """Whether an engine would do the same with both; budgets may differ."""
    return all(getattr(one, name) == getattr(other, name) for name in (*KEPT, *_SPLIT))


def change_of(running: MemoryPlan, report: ResidencyReport, new: MemoryPlan) -> Change:
    """What another split of the same model changes; of another model only context and KV cache can be compared."""
    found: defaultdict[tuple[Tier, Tier], list[Mover]] = defaultdict(list)
    for mover in _movers(report, new) if new.model_dir == running.model_dir else ():
        found[mover.from_tier, mover.to_tier].append(mover)
    order = list(Tier)
    moves = [Move(*tiers, len(moved), sum(one.nbytes for one in moved)) for tiers, moved in found.items()]
    return Change(
        moves=tuple(sorted(moves, key=lambda move: (order.index(move.from_tier), order.index(move.to_tier)))),
        context_tokens=(running.context_tokens, new.context_tokens),
        kv_bytes=(kv_bytes(running), kv_bytes(new)),
        expert_slots=(running.expert_slots, new.expert_slots),
    )


def why_restart(running: MemoryPlan, report: ResidencyReport, new: MemoryPlan) -> Problem | None:
    """Why the running engine cannot take a plan; None: as far as can be told before, it can."""
    try:
        check_change(running, new)
        peak = move_peak(running, new, assign(_movers(report, new)))
        refused = report.ring_cause is not None or any(layer.asked is Tier.PINNED for layer in report.fallen)
        if peak.pinned_bytes and refused:
            return Problem(
                kind="pin_refused",
                sentence="The driver refused a pin in this run, and is not asked for another one.",
                fix=RESTART,
                numbers={"asked_bytes": peak.pinned_bytes},
            )
        held = {pool: sum(line.bytes for line in report.ledger_settled if line.pool is pool) for pool in Pool}
        check_peak(new, held, peak)
    except SplitpinError as error:
        return error.problem
    return None


def kv_bytes(plan: MemoryPlan) -> int:
    """The KV cache of a plan, as its ledger has it."""
    pool = Pool.RAM if plan.device == "cpu" else Pool.VRAM
    return sum(line.bytes for line in plan.ledger if line.what == KV_CACHE and line.pool is pool)


def _movers(report: ResidencyReport, new: MemoryPlan) -> list[Mover]:
    seated = ((layer.layer, layer.asked, layer.settled, layer.bytes) for layer in report.layers)
    return movers(seated, dict(zip(new.model.moe_layers, new.tiers, strict=True)))
