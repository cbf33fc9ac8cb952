"""The only place where bytes are computed, with estimate_work.py: slider, verdicts, refusals, the engine's allocations.

Letters as in shape.py. The engine allocates what these functions say and asserts it while building.
"""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from pydantic import Field

from engine.contract.estimate_work import unpacked_bytes, workspace_bytes
from engine.contract.formats import ExpertStorage, MatrixStorage, WeightFormat, alike, usual_storage
from engine.contract.ledger import (
    DRIVER,
    EXPERT_SLOTS,
    HOST_RUNTIME,
    KV_CACHE,
    PREFIX_SNAPSHOTS,
    SCRATCH,
    STATE,
    TRANSFER_RING,
    UNPACKED_KV,
    VRAM_LAYERS,
    WEIGHTS,
    WORKSPACE,
    in_pools,
)
from engine.contract.plan import LedgerLine, MemoryPlan, Tier
from engine.contract.record import Record
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape, StateTensor
from engine.contract.units import round_up

PART_ALIGN = 64  # one matrix inside an expert record starts on a cache line
BANK_ALIGN = 4096  # a bank is whole pages
KV_PAGE_TOKENS = 256  # contexts offered to people are multiples of this
KV_VALUE_BYTES = 2  # bf16
KV_SCALE_BYTES = 2  # bf16, of keys and values in fp8
PREFIX_SLOTS = 16  # eight conversations with two snapshots each
PREFIX_BYTES = 512 << 20
FEW_SLOTS = 4
FEW_BYTES = 1 << 30  # llama4's parts of 8,192 tokens would take more than a layer of experts
RING_HALF_BYTES = 32 << 20  # some milliseconds of any bus: long beside the cost of starting a copy


class ExpertPart(Record):
    """One matrix or bias inside an expert record."""

    name: str
    rows: int
    columns: int
    offset: int
    bytes: int


class ExpertRecord(Record):
    """Layout of one expert: its parts back to back, so that one expert is one contiguous copy."""

    parts: tuple[ExpertPart, ...]
    bytes: int


@lru_cache(maxsize=1024)
def expert_record(experts: ExpertShape, stored: WeightFormat | ExpertStorage) -> ExpertRecord:
    """Lay out one expert: gate_up [2F, M] (or up [F, M]), down [M, F], then biases in bf16 or as they are stored.

    Each matrix is followed by its scales, zero points and column order, if it has such ("gate_up_scale", ...). Gate
    and up are one part if they are stored the same way, the pieces of gate first.
    """
    storage = stored if isinstance(stored, ExpertStorage) else alike(usual_storage(stored))
    width, inner, bias_bytes = experts.width, experts.inner, storage.bias_bytes
    if not experts.has_gate:
        up = "up"
        sizes = _matrix_parts("up", storage.up, inner, width, 1)
    elif storage.gate == storage.up:
        up = "gate_up"
        sizes = _matrix_parts("gate_up", storage.up, inner, width, 2)
    else:
        up = "gate_up"  # biases have one format anyway
        sizes = _matrix_parts("gate", storage.gate, inner, width, 1) + _matrix_parts("up", storage.up, inner, width, 1)
    sizes += _matrix_parts("down", storage.down, width, inner, 1)
    if experts.has_bias:
        rows_up = inner * (2 if experts.has_gate else 1)
        sizes += [(f"{up}_bias", 1, rows_up, rows_up * bias_bytes), ("down_bias", 1, width, width * bias_bytes)]
    parts: list[ExpertPart] = []
    offset = 0
    for name, rows, columns, size in sizes:
        parts.append(ExpertPart(name=name, rows=rows, columns=columns, offset=offset, bytes=size))
        offset = round_up(offset + size, PART_ALIGN)
    return ExpertRecord(parts=tuple(parts), bytes=offset)


def _matrix_parts(
    name: str, storage: MatrixStorage, rows: int, columns: int, count: int
) -> list[tuple[str, int, int, int]]:
    """Name, rows, columns and bytes of a matrix and what belongs to it; `count` matrices lie one below the other."""
    return [
        (f"{name}{suffix}", count * down, across, count * size)
        for suffix, down, across, size in storage.pieces(rows, columns)
    ]


def bank_bytes(experts: ExpertShape, stored: WeightFormat | ExpertStorage) -> int:
    """Bytes of one layer's bank: E expert records, rounded up to whole pages."""
    return round_up(experts.n_experts * expert_record(experts, stored).bytes, BANK_ALIGN)


def banks(shape: ModelShape) -> tuple[int, ...]:
    """Bytes of each bank, in the order of `shape.moe_layers`; they differ where layers are stored differently."""
    known = shape.storages or (shape.expert_format,)
    sizes = tuple(bank_bytes(shape.experts, stored) for stored in known)
    return sizes * len(shape.moe_layers) if len(sizes) == 1 else sizes


def slot_bytes(shape: ModelShape) -> int:
    """Bytes of one expert slot: slots are shared by all layers, so it holds the largest record."""
    known = shape.storages or (shape.expert_format,)
    return max(expert_record(shape.experts, stored).bytes for stored in known)


def most_ring_experts(shape: ModelShape) -> int:
    """Experts of a transfer ring that is large enough: two halves of `RING_HALF_BYTES`, or of a whole layer."""
    half = min(shape.experts.n_experts, RING_HALF_BYTES // max(slot_bytes(shape), 1))
    return 2 * max(half, 1)


def kv_layer_bytes(kv: KvShape, context_tokens: int, bytes_per_value: int = KV_VALUE_BYTES) -> int:
    """Bytes one layer's cache takes: context_tokens, or the window where that is shorter, times K · (Dk + Dv).

    In fp8 a value is one byte, and keys and values have a scale a head each.
    Where tokens are chosen by a key of their own, that key counts too, and of pooled tokens each complete entry.
    """
    if context_tokens < 0:
        raise ValueError(f"context_tokens must be >= 0, got {context_tokens}")
    held = context_tokens if kv.window is None else min(context_tokens, kv.window)
    if kv.fp8:
        return held * (kv.values_per_token + 2 * kv.n_kv_heads * KV_SCALE_BYTES)
    pooled = sum(context_tokens // entries.step * entries.dim for entries in kv.pooled)
    return (held * kv.values_per_token + pooled) * bytes_per_value + position_bytes(kv, context_tokens)


def position_bytes(kv: KvShape, context_tokens: int) -> int:
    """Bytes of positions that one layer keeps for all, 8 each."""
    return 8 * kv.index_positions * context_tokens


def kv_cache_bytes(shape: ModelShape, context_tokens: int, bytes_per_value: int | None = None) -> int:
    """Bytes of the KV cache of one session, all layers. engine/model/kv_cache.py allocates exactly this.

    `bytes_per_value` None: as the checkpoint's dense part says.
    """
    size = bytes_per_value or shape.value_bytes
    return sum(kv_layer_bytes(kv, context_tokens, size) for kv in shape.kv_layers)


def unpacked_kv_bytes(shape: ModelShape, context_tokens: int) -> int:
    """One layer's keys and values in the model's type, where they are stored in fp8: attention reads them there.

    engine/model/kv_cache.py allocates exactly this, once for all layers.
    """
    plain = (kv.model_copy(update={"fp8": False}) for kv in set(shape.kv_layers) if kv.fp8)
    return max((kv_layer_bytes(kv, context_tokens, shape.value_bytes) for kv in plain), default=0)


def kv_traffic_bytes(shape: ModelShape, context_tokens: int) -> int:
    """Bytes of keys and values that one token moves: all are read; those in fp8 are unpacked first, and read again."""
    plain = (kv.model_copy(update={"fp8": False}) for kv in shape.kv_layers if kv.fp8)
    unpacked = sum(kv_layer_bytes(kv, context_tokens, shape.value_bytes) for kv in plain)
    return kv_cache_bytes(shape, context_tokens) + 2 * unpacked


def kv_bytes_per_token(shape: ModelShape, bytes_per_value: int | None = None) -> int:
    """Bytes the first token takes: 2 · L · K · D · bytes where all layers are alike, windows not yet full."""
    return kv_cache_bytes(shape, 1, bytes_per_value)


def state_tensor_bytes(tensor: StateTensor, bytes_per_value: int = KV_VALUE_BYTES) -> int:
    """Bytes of one state of one layer; `bytes_per_value` is that of keys and values."""
    return tensor.values * {"model": bytes_per_value, "fp32": 4, "int64": 8}[tensor.dtype]


def state_bytes(shape: ModelShape) -> int:
    """Bytes of what layers keep of a sequence whatever its length. engine/model/kv_cache.py allocates exactly this."""
    size = shape.value_bytes
    states = [layer.state for layer in shape.cached_layers if layer.state is not None]
    return sum(state_tensor_bytes(tensor, size) for state in states for tensor in state.tensors)


def snapshot_bytes(shape: ModelShape, context_tokens: int) -> int:
    """Bytes of one copy of what only fits one length of a sequence: all windows and states."""
    size = shape.value_bytes
    windows = (kv_layer_bytes(kv, context_tokens, size) for kv in shape.kv_layers if kv.window is not None)
    return sum(windows) + state_bytes(shape)


def prefix_slots(shape: ModelShape) -> int | None:
    """Snapshots a session keeps in host memory for beginnings of prompts that come again.

    None: full attention needs none. Else `PREFIX_SLOTS`, or as many as `PREFIX_BYTES` hold at the model's longest
    context; where that is less than `FEW_SLOTS`, so many or as many as `FEW_BYTES` hold. 0, which means that no
    beginning is reused: those of pooled attention would grow with the context.
    """
    if any(kv.pooled for kv in shape.kv_layers):
        return 0
    size = snapshot_bytes(shape, shape.max_context_tokens)
    if not size:
        return None
    return max(min(PREFIX_SLOTS, PREFIX_BYTES // size), min(FEW_SLOTS, FEW_BYTES // size))


def prefix_bytes(shape: ModelShape, context_tokens: int) -> int:
    """Host memory of all snapshots. engine/model/snapshots.py allocates exactly this."""
    return (prefix_slots(shape) or 0) * snapshot_bytes(shape, context_tokens)


class Costs(Record):
    """Bytes of a launch that do not depend on the model: they come from the machine and the user's reserves."""

    context_bytes: int = Field(default=0, ge=0, description="VRAM the driver takes for one CUDA process")
    host_runtime_bytes: int = Field(default=0, ge=0, description="the engine process without any weights")


class Split(Record):
    """The decision whose bytes are asked for. `tiers[i]` belongs to `shape.moe_layers[i]`."""

    context_tokens: int
    prefill_chunk: int
    expert_slots: int
    tiers: tuple[Tier, ...]
    on_gpu: bool
    ring_experts: int = 0
    ring_staged: bool = False


def ring_host_bytes(shape: ModelShape, split: Split | MemoryPlan) -> int:
    """Pinned host memory of the transfer ring: as large as its side in VRAM."""
    return split.ring_experts * slot_bytes(shape) if split.ring_staged else 0


def scratch_bytes(shape: ModelShape, split: Split) -> int:
    """Host memory in which the CPU unpacks experts beside a GPU. Without a GPU that is part of the workspace."""
    on_cpu = any(tier in (Tier.LOCKED, Tier.PAGEABLE) for tier in split.tiers)
    return unpacked_bytes(shape) if split.on_gpu and on_cpu else 0


class ContextBytes:
    """KV cache and workspace as a function of the context, and its inverse; layers that are alike are counted once."""

    def __init__(self, shape: ModelShape, prefill_chunk: int) -> None:
        groups = Counter(shape.kv_layers)
        kinds = [LayerShape(index=0, kv=kv) for kv in groups]
        kinds += [LayerShape(index=0, state=state) for state in shape.different_states]
        self._kinds = shape.model_copy(update={"layers": tuple(kinds)})
        self._counts = tuple(groups.items())
        self._state_bytes = state_bytes(shape)
        self._value_bytes = shape.value_bytes
        self._prefill_chunk = prefill_chunk
        self._most = shape.max_context_tokens

    def at(self, context_tokens: int) -> int:
        """`kv_cache_bytes`, `unpacked_kv_bytes`, `state_bytes` and `workspace_bytes` together."""
        cache = unpacked_kv_bytes(self._kinds, context_tokens)
        cache += sum(count * kv_layer_bytes(kv, context_tokens, self._value_bytes) for kv, count in self._counts)
        return cache + self._state_bytes + workspace_bytes(self._kinds, self._prefill_chunk, context_tokens)

    def most_tokens(self, budget_bytes: int) -> int:
        """The longest context within a budget: whole pages, or the model's maximum; 0 where not even one page fits."""
        return most_tokens(lambda tokens: self.at(tokens) <= budget_bytes, self._most)


def most_tokens(fits: Callable[[int], bool], most: int) -> int:
    """The longest context that fits: whole pages, or `most`, the model's maximum; 0 where not even one page does."""
    if fits(most):
        return most
    pages, too_many = 0, -(-most // KV_PAGE_TOKENS)
    while too_many - pages > 1:
        middle = (pages + too_many) // 2
        if fits(middle * KV_PAGE_TOKENS):
            pages = middle
        else:
            too_many = middle
    return pages * KV_PAGE_TOKENS


def ledger(shape: ModelShape, split: Split, costs: Costs) -> tuple[LedgerLine, ...]:
    """Every allocation of a split, one line for each pool. Without a GPU the device lines count against RAM."""
    held = dict.fromkeys(Tier, 0)
    for tier, size in zip(split.tiers, banks(shape), strict=True):
        held[tier] += size
    device = [
        (WEIGHTS, shape.dense_bytes),
        (KV_CACHE, kv_cache_bytes(shape, split.context_tokens)),
        (UNPACKED_KV, unpacked_kv_bytes(shape, split.context_tokens)),
        (STATE, state_bytes(shape)),
        (WORKSPACE, workspace_bytes(shape, split.prefill_chunk, split.context_tokens)),
    ]
    if split.on_gpu:
        device += [
            (VRAM_LAYERS, held[Tier.VRAM]),
            (EXPERT_SLOTS, split.expert_slots * slot_bytes(shape)),
            (TRANSFER_RING, split.ring_experts * slot_bytes(shape)),
            (DRIVER, costs.context_bytes),
        ]
    host = [
        (HOST_RUNTIME, costs.host_runtime_bytes),
        (PREFIX_SNAPSHOTS, prefix_bytes(shape, split.context_tokens)),
        (SCRATCH, scratch_bytes(shape, split)),
        (TRANSFER_RING, ring_host_bytes(shape, split)),
    ]
    return in_pools(device, host, held, on_gpu=split.on_gpu)
