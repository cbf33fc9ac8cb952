"""What the user asks for. A value the user fixed is a constraint; None leaves the choice to the planner."""

from pydantic import Field

from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.record import Record
from engine.contract.shape import KvType

DEFAULT_PREFILL_CHUNK = 512


class Wishes(Record):
    """Input of the planner beside shape and facts."""

    context_tokens: int | None = Field(
        default=None, gt=0, description="None: the longest that keeps most layers in VRAM"
    )
    vram_layers: int | None = Field(default=None, ge=0)
    pinned_layers: int | None = Field(default=None, ge=0, description="None: fill the quota")
    forced: dict[int, Tier] = Field(default_factory=dict, description="layer index to tier")
    vram_reserve_bytes: int | None = Field(default=None, ge=0, description="left for other programs; None: by rule")
    ram_reserve_bytes: int | None = Field(default=None, ge=0)
    pin_cap_bytes: int | None = Field(default=None, ge=0, description="the user's own limit for pinned memory")
    allow_pageable: bool = False
    prefill_chunk: int = Field(default=DEFAULT_PREFILL_CHUNK, gt=0)
    kv_dtype: KvType | None = Field(default=None, description="of keys and values; None: as the model's other weights")
    simulated_gpu: SimulatedGpu | None = None
