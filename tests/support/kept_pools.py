"""What transformers' own layers of compressed attention keep, in the words of the contract."""

from typing import Any

import torch

from engine.contract.shape import PooledShape, StateTensor

_DTYPES = {torch.float32: "fp32", torch.bfloat16: "model"}


def kept_pools(layer: Any) -> tuple[PooledShape, ...]:
    """The pools of a layer of DeepSeek V4 after its first tokens; none for other layers."""
    return tuple(
        PooledShape(step=layer.compress_rate, dim=entries.shape[2], index=name == "indexer")
        for name, entries in getattr(layer, "compressed_kv", {}).items()
    )


def kept_pending(layer: Any) -> tuple[StateTensor, ...]:
    """The largest size of what waits for the next entry, and of what overlapping entries leave behind."""
    found: list[StateTensor] = []
    for name in getattr(layer, "compressed_kv", {}):
        for waiting in (layer.buffer_kv[name], layer.buffer_gate[name]):
            found.append(_pending((layer.compress_rate - 1, waiting.shape[2]), waiting.dtype))
        for before in (getattr(layer, "overlap_kv", {}), getattr(layer, "overlap_gate", {})):
            if name in before:
                found.append(_pending(tuple(before[name].shape[1:]), before[name].dtype))
    return tuple(found)


def _pending(sizes: tuple[int, ...], dtype: torch.dtype) -> StateTensor:
    return StateTensor.model_validate({"kind": "pending", "sizes": sizes, "dtype": _DTYPES[dtype]})
