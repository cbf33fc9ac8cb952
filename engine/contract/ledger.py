"""What memory is for, in the words of the ledger, and the pools that every purpose counts against.

The plan is written with it, and so is what the engine really allocated: both are compared line by line.
"""

from collections.abc import Iterable, Mapping

from engine.contract.errors import (
    LockLimitError,
    NotEnoughCommitError,
    NotEnoughMemoryError,
    NotEnoughRamError,
    NotEnoughVramError,
    PinQuotaError,
)
from engine.contract.plan import LedgerLine, Pool, Tier

WEIGHTS = "weights"
KV_CACHE = "KV cache"
UNPACKED_KV = "unpacked KV"  # one layer's keys and values in the model's type, where they are kept in fp8
STATE = "state"
WORKSPACE = "workspace"  # a reserve: torch allocates it while it works
VRAM_LAYERS = "expert layers"
EXPERT_SLOTS = "expert slots"
TRANSFER_RING = "transfer ring"  # of what lies in host memory beside the layers the only part that is pinned
DRIVER = "driver"  # a reserve: the driver allocates it
HOST_RUNTIME = "engine process"  # a reserve: nothing is allocated under this name
PREFIX_SNAPSHOTS = "prefix snapshots"
SCRATCH = "scratch"  # where the CPU unpacks experts beside a GPU

NOT_ENOUGH: Mapping[Pool, type[NotEnoughMemoryError]] = {  # pageable memory has no limit of its own
    Pool.VRAM: NotEnoughVramError,
    Pool.PINNED: PinQuotaError,
    Pool.LOCKED: LockLimitError,
    Pool.RAM: NotEnoughRamError,
    Pool.COMMIT: NotEnoughCommitError,
}

Purposes = Iterable[tuple[str, int]]  # with bytes


def in_pools(device: Purposes, host: Purposes, layers: Mapping[Tier, int], *, on_gpu: bool) -> tuple[LedgerLine, ...]:
    """One line for each purpose and pool; those of 0 B are left out.

    Pools: a pinned layer counts against pinned, ram and commit; a locked one against locked, ram and commit; a pageable
    one against pageable and commit. What lies in host memory beside the layers counts against ram and commit, and so
    does what the device holds where there is no GPU.

    Args:
        device: what the device holds, layers in VRAM included.
        host: what lies in host memory beside the layers.
        layers: bytes of the layers in each tier of host memory.
    """
    host = list(host)
    beside = host if on_gpu else [*device, *host]
    lines = [(Pool.VRAM, what, size) for what, size in device] if on_gpu else []
    outside = (Tier.PINNED, Tier.LOCKED, Tier.PAGEABLE)
    lines += [(Pool(tier.value), f"{tier.value} layers", layers[tier]) for tier in outside]
    lines += [(Pool.PINNED, what, size) for what, size in host if what == TRANSFER_RING]
    resident = [*beside, *((f"{tier.value} layers", layers[tier]) for tier in (Tier.PINNED, Tier.LOCKED))]
    lines += [(Pool.RAM, what, size) for what, size in resident]
    committed = [*resident, ("pageable layers", layers[Tier.PAGEABLE])]
    lines += [(Pool.COMMIT, what, size) for what, size in committed]
    return tuple(LedgerLine(pool=pool, what=what, bytes=size) for pool, what, size in lines if size)
