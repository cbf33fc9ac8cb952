"""Cache layers of attention that chooses its tokens by an index, where a model asks for more than DeepSeek's does."""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from engine.contract.estimate import position_bytes
from engine.contract.shape import KvShape
from engine.model.kv_layers import IndexedKvLayer, KvLayer


class BlockIndexedKvLayer(IndexedKvLayer):  # type: ignore[no-untyped-call]
    """MiniMax M3: blocks of tokens are chosen; the same keys under another name and with one head."""

    def update_index(self, idx_k: Tensor) -> Tensor:
        """Append keys [1, 1, new, D]; all of them so far.

        Raises:
            ContextTooLongError: they do not fit.
        """
        return self.update_indexer(idx_k[:, 0])[:, None]


class PositionedKvLayer(IndexedKvLayer):  # type: ignore[no-untyped-call]
    """Qwen 4: positions of all tokens, [axes, 1, tokens] int64, are kept for every index in the first layer with one.

    The model sets them as a whole in every step; only what is new is written into the buffer.
    """

    def __init__(
        self, kv: KvShape, context_tokens: int, memory: Tensor, dtype: torch.dtype, unpacked: Tensor | None = None
    ) -> None:
        """`memory`: uint8, exactly `kv_layer_bytes` long; positions lie in front."""
        size = position_bytes(kv, context_tokens)
        self._positions = memory[:size].view(torch.int64).view(kv.index_positions, 1, context_tokens)
        self._known = 0
        super().__init__(kv, context_tokens, memory[size:], dtype, unpacked)

    @property  # type: ignore[explicit-override]  # mypy does not see it on a property with a setter
    @override
    def indexer_position_ids(self) -> Tensor | None:
        """Positions so far; None before the first token."""
        return self._positions[:, :, : self._known] if self._known else None

    @indexer_position_ids.setter
    @override
    def indexer_position_ids(self, positions: Tensor | None) -> None:
        tokens = 0 if positions is None else positions.shape[2]
        if positions is not None:
            kept = self._known if self._known < tokens else 0
            self._positions[:, :, kept:tokens] = positions[:, :, kept:]
        self._known = tokens

    @property
    @override
    def nbytes(self) -> int:
        return super().nbytes + self._positions.nbytes


def attention_layer(kv: KvShape) -> type[KvLayer]:
    """The kind of layer that keeps what attention needs, where there is no state beside it."""
    if kv.index_positions:
        return PositionedKvLayer
    if kv.index_blocks:
        return BlockIndexedKvLayer
    return IndexedKvLayer if kv.index_dim else KvLayer


def has_index(theirs: Any) -> bool:
    """Whether transformers' own layer keeps keys of an index."""
    return hasattr(theirs, "update_indexer") or hasattr(theirs, "update_index")
