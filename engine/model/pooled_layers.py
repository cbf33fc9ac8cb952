"""Cache layers of compressed attention: a window of tokens, and pooled entries that stand for many tokens each."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from engine.contract.errors import PlanMismatchError
from engine.contract.shape import KvShape, LayerShape, StateShape
from engine.model.kv_layers import KvLayer


class _Pool:
    """Entries [1, n, D] of one kind, and what waits for the next of them; all in buffers of fixed size."""

    def __init__(
        self, step: int, entries: Tensor, waiting: tuple[Tensor, Tensor], before: tuple[Tensor, Tensor] | None
    ):
        """`waiting`: values and gates of up to step - 1 tokens; `before`: those of the newest entry's tokens."""
        self.step = step
        self.entries = entries
        self.waiting = waiting
        self.before = before
        self.reset()

    def reset(self) -> None:
        self.complete = 0
        self.waiting_tokens = 0
        self.has_before = False

    def take(self, values: Tensor, gates: Tensor) -> tuple[Tensor, Tensor, int]:
        """Tokens [1, new, W] behind those that wait; back come all that make whole entries, and where they begin."""
        first = self.complete * self.step
        if self.waiting_tokens:
            values = torch.cat([self.waiting[0][:, : self.waiting_tokens], values], dim=1)
            gates = torch.cat([self.waiting[1][:, : self.waiting_tokens], gates], dim=1)
        usable = values.shape[1] // self.step * self.step
        rest = values.shape[1] - usable
        for buffer, new in zip(self.waiting, (values, gates), strict=True):
            _check(buffer, new, 2)
            buffer[:, :rest] = new[:, usable:]
        self.waiting_tokens = rest
        return values[:, :usable], gates[:, :usable], first

    def append(self, new: Tensor) -> Tensor:
        """Entries so far, the new ones [1, n, D] last."""
        end = self.complete + new.shape[1]
        _check(self.entries, new, 2)
        self.entries[:, self.complete : end] = new
        self.complete = end
        return self.entries[:, :end]

    def swap_before(self, values: Tensor, gates: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Keep the tokens [1, step, D] of the newest entry; back come those of the entry before, if there is one."""
        assert self.before is not None
        old = tuple(buffer.clone() for buffer in self.before) if self.has_before else (None, None)
        for buffer, new in zip(self.before, (values, gates), strict=True):
            _check(buffer, new, 1)
            buffer.copy_(new)
        self.has_before = True
        return old[0], old[1]


class PooledKvLayer(KvLayer):  # type: ignore[no-untyped-call]
    """A window whose keys are the values too, and the entries that DeepSeek V4's compressors make of all tokens.

    The model calls its pools "compressor" and "indexer", and asks for the methods below by these names.
    """

    def __init__(
        self,
        kv: KvShape,
        context_tokens: int,
        memory: Tensor,
        dtype: torch.dtype,
        buffers: Sequence[Tensor],
    ) -> None:
        """`memory`: uint8, exactly `kv_layer_bytes` long; `buffers`: one for each tensor of the layer's state."""
        super().__init__(kv, context_tokens, memory, dtype)
        self.pools: dict[str, _Pool] = {}
        stored = memory.view(dtype)
        start = self._keys.numel()
        each = len(buffers) // max(len(kv.pooled), 1)
        for number, pooled in enumerate(kv.pooled):
            count = context_tokens // pooled.step
            end = start + count * pooled.dim
            own = buffers[number * each : (number + 1) * each]
            before = (own[2], own[3]) if each > 2 else None
            entries = stored[start:end].view(1, count, pooled.dim)
            self.pools["indexer" if pooled.index else "compressor"] = _Pool(
                pooled.step, entries, (own[0], own[1]), before
            )
            start = end

    @override
    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        keys, _ = super().update(key_states, value_states[..., :0])
        return keys, keys

    def store_compression_weights(self, name: str, kv: Tensor, gate: Tensor) -> tuple[Tensor, Tensor, int]:
        """Values and gates of new tokens; back come those that make whole entries."""
        return self.pools[name].take(kv, gate)

    def update_compressor_states(self, name: str, compressed: Tensor) -> Tensor:
        """Append entries; all of them so far."""
        return self.pools[name].append(compressed)

    def update_overlap_state(
        self, name: str, chunk_kv: Tensor, chunk_gate: Tensor, head_dim: int
    ) -> tuple[Tensor | None, Tensor | None]:
        """Keep the half of the newest entry's tokens, [1, entries, step, 2 · D], that the next entry needs."""
        return self.pools[name].swap_before(chunk_kv[:, -1, :, :head_dim], chunk_gate[:, -1, :, :head_dim])

    @override
    def reset(self) -> None:
        super().reset()
        for pool in self.pools.values():
            pool.reset()

    @property
    @override
    def nbytes(self) -> int:
        return super().nbytes + sum(pool.entries.nbytes for pool in self.pools.values())


def check_pools(theirs: Any, layer: LayerShape) -> None:
    """Compare the plan's pools with those of transformers' own layer.

    Raises:
        PlanMismatchError: they are others.
    """
    assert layer.kv is not None
    steps: dict[str, int] = dict.fromkeys(getattr(theirs, "compressed_kv", {}), getattr(theirs, "compress_rate", 0))
    planned = {"indexer" if pooled.index else "compressor": pooled.step for pooled in layer.kv.pooled}
    if steps != planned:
        raise PlanMismatchError(
            f"Layer {layer.index} pools {steps or 'no'} tokens; the plan counts {planned or 'none'}.",
            "Plan the start again.",
            layer=layer.index,
        )


def is_pending(state: StateShape | None) -> bool:
    """Whether a state only holds tokens that wait to be pooled."""
    return state is not None and all(tensor.kind == "pending" for tensor in state.tensors)


def _check(buffer: Tensor, new: Tensor, first_axis: int) -> None:
    """Refuse values of another width or type than was planned.

    Raises:
        PlanMismatchError: the plan counts something else.
    """
    if buffer.shape[first_axis:] != new.shape[first_axis:] or buffer.dtype != new.dtype:
        raise PlanMismatchError(
            f"The model pools {list(new.shape)} of {new.dtype}, the plan {list(buffer.shape)} of {buffer.dtype}.",
            "Plan the start again.",
        )
