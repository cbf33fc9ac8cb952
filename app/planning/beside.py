"""The machine beside the engine that runs: what another split for it could use."""

from app.planning.budgets import budgets
from app.planning.held import freed
from app.planning.wishes import Wishes
from engine.contract.facts import HardwareFacts
from engine.contract.plan import MemoryPlan, Pool
from engine.contract.residency import ResidencyReport
from engine.contract.units import MIB

# Readings differ by so much without anything having changed. Half of the smallest reserve, which is left for that.
_NOISE_BYTES = 256 * MIB


def facts_beside(
    now: HardwareFacts, report: ResidencyReport, running: MemoryPlan, wishes: Wishes | None = None
) -> HardwareFacts:
    """The machine as it would be without the running engine, whose own ledger says what it holds.

    Budgets are never more than those of `running`: what a ledger reserves and the engine does not use yet would else be
    taken for room. They are the same, so that the same wishes have the same plan, unless other programs have taken more
    since.

    Args:
        now: as read while the engine runs.
        wishes: those `running` was planned with, as far as they are known.
    """
    held = {pool: sum(line.bytes for line in report.ledger_settled if line.pool is pool) for pool in Pool}
    on_host = held[Pool.VRAM] if report.simulated else 0  # a simulated GPU lies in RAM
    without = freed(
        now,
        ram_bytes=held[Pool.RAM] + on_host,
        commit_bytes=held[Pool.COMMIT] + on_host,
        vram_bytes=0 if report.simulated else held[Pool.VRAM],
        pinned_bytes=0 if report.simulated else held[Pool.PINNED],
    )
    found = budgets(without, wishes or Wishes(simulated_gpu=running.simulated))
    return freed(
        without,
        ram_bytes=_back(found.ram.bytes, running.budgets.get(Pool.RAM)),
        commit_bytes=_back(found.commit.bytes, running.budgets.get(Pool.COMMIT)),
        vram_bytes=0 if report.simulated else _back(found.vram.bytes, running.budgets.get(Pool.VRAM)),
    )


def _back(found: int | None, before: int | None) -> int:
    """What brings a budget back to what it was; 0 where clearly less is left."""
    if found is None or before is None or found < before - _NOISE_BYTES:
        return 0
    return before - found
