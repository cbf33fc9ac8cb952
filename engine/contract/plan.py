"""Where every byte of one launch goes. The engine obeys it and reports; it never re-plans."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from engine.contract.record import Record
from engine.contract.shape import KvType, ModelShape


class Tier(StrEnum):
    """Where the routed experts of one layer live, fastest first."""

    VRAM = "vram"
    PINNED = "pinned"
    LOCKED = "locked"
    PAGEABLE = "pageable"


class Pool(StrEnum):
    """A limit that bytes count against. `ram` is the sum of everything resident on the host."""

    VRAM = "vram"
    PINNED = "pinned"
    LOCKED = "locked"
    PAGEABLE = "pageable"
    RAM = "ram"
    COMMIT = "commit"


class LedgerLine(Record):
    """One allocation or reserve. A byte of host memory appears once per pool it counts against."""

    pool: Pool
    what: str
    bytes: int = Field(ge=0)


class SimulatedGpu(Record):
    """Limits of a GPU that does not exist: host memory with enforced limits and refusals on demand."""

    vram_bytes: int = Field(gt=0)
    pin_bytes: int = Field(ge=0)
    refuse_pin_after_layers: int | None = Field(default=None, ge=0, description="the driver refuses from here on")
    refuse_lock_after_layers: int | None = Field(default=None, ge=0)


class MemoryPlan(Record):
    """One launch. `tiers[i]` is the tier of `model.moe_layers[i]`."""

    version: Literal[1] = 1
    model_dir: str
    model: ModelShape
    device: Literal["cuda", "cpu", "simulated"]
    gpu_uuid: str | None = None
    simulated: SimulatedGpu | None = None
    context_tokens: int = Field(gt=0, description="tokens of prompt plus answer the KV cache holds")
    prefill_chunk: int = Field(gt=0, description="most tokens one prefill step computes")
    expert_slots: int = Field(ge=0, description="GPU buffers for experts of pinned layers, shared by all of them")
    ring_experts: int = Field(
        default=0, ge=0, description="GPU buffers through which prompts get at experts; 0: through the slots"
    )
    ring_staged: bool = Field(
        default=False, description="the ring has a pinned side, so that prompts reach the GPU from locked layers too"
    )
    tiers: tuple[Tier, ...]
    ledger: tuple[LedgerLine, ...]
    budgets: dict[Pool, int | None] = Field(description="most bytes each pool may take; None: not limited or unknown")
    load_peak: dict[Pool, int] = Field(
        default_factory=dict, description="most bytes a pool holds while loading, where that is known"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.tiers) != len(self.model.moe_layers):
            raise ValueError(f"{len(self.tiers)} tiers for {len(self.model.moe_layers)} MoE layers")
        if (self.simulated is not None) != (self.device == "simulated"):
            raise ValueError("limits of a simulated GPU belong to device 'simulated' and to no other")
        if self.device == "cpu" and {Tier.VRAM, Tier.PINNED} & set(self.tiers):
            raise ValueError("a CPU plan has no vram or pinned layers")
        if Tier.PINNED in self.tiers and self.expert_slots < 1:
            raise ValueError("pinned layers need expert slots")
        if self.ring_experts == 1 or (self.ring_experts and self.device == "cpu"):
            raise ValueError("a transfer ring has two experts at least, on a GPU")
        if self.ring_staged and not self.ring_experts:
            raise ValueError("only a transfer ring has a pinned side")
        for pool, budget in self.budgets.items():
            peak = max(self.pool_bytes(pool), self.load_peak.get(pool, 0))
            if budget is not None and peak > budget:
                raise ValueError(f"{pool}: {peak} B planned, {budget} B allowed")
        return self

    @property
    def kv_dtype(self) -> KvType:
        """What the KV cache is kept in; the shape counts it so."""
        return self.model.kv_dtype

    def pool_bytes(self, pool: Pool) -> int:
        """Sum of the ledger lines of one pool."""
        return sum(line.bytes for line in self.ledger if line.pool == pool)

    def layers_in(self, tier: Tier) -> int:
        """How many MoE layers are planned for a tier."""
        return self.tiers.count(tier)
