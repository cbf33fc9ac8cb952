"""Cache layers of attention: keys and values in buffers of fixed size, allocated once, attended to without padding."""

from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin
from typing_extensions import override

from engine.contract.errors import ContextTooLongError
from engine.contract.shape import KvShape


class KvLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one attention layer in a buffer of fixed size, [1, K, held tokens, D].

    Full attention: tokens lie in order and `update` returns the used part of the buffer. A sliding layer holds the last
    `window` tokens as a ring, token t at t mod window. While one token is decoded the whole ring is returned, not in
    order: keys carry their position already and attention sums over them in any order. Prefill gets them in order.

    Latent attention stores its latent as keys and the rotated part as values, one head each; nothing here differs.
    """

    is_croppable = False
    supports_early_init = False

    def __init__(self, kv: KvShape, context_tokens: int, memory: Tensor, dtype: torch.dtype) -> None:
        """`memory`: uint8, exactly `kv_layer_bytes` long."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_sliding = kv.window is not None
        self.window = kv.window
        self.seen = 0
        self._in_order = kv.chunked  # its mask hides what lies before the current part
        self._context_tokens = context_tokens
        self._held = context_tokens if kv.window is None else min(context_tokens, kv.window)
        heads, keys = kv.n_kv_heads, self._held * kv.n_kv_heads * kv.key_dim
        end = keys + self._held * kv.n_kv_heads * kv.value_dim
        values = memory.view(dtype)
        self.keys = values[:keys].view(1, heads, self._held, kv.key_dim)
        self.values = values[keys:end].view(1, heads, self._held, kv.value_dim)
        self.is_initialized = True

    @override
    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        raise AssertionError("the buffers exist from the start")

    @override
    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        new = key_states.shape[-2]
        if self.seen + new > self._context_tokens:
            raise ContextTooLongError(prompt_tokens=self.seen + new, context_tokens=self._context_tokens)
        if self.seen + new <= self._held:
            result = self._append(key_states, value_states, new)
        elif new == 1 and not self._in_order:
            result = self._decode_in_ring(key_states, value_states)
        else:
            result = self._prefill_through_ring(key_states, value_states, new)
        self.seen += new
        return result

    def _append(self, keys: Tensor, values: Tensor, new: int) -> tuple[Tensor, Tensor]:
        end = self.seen + new
        self._keys[:, :, self.seen : end] = keys
        self._values[:, :, self.seen : end] = values
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _decode_in_ring(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        slot = self.seen % self._held
        self._keys[:, :, slot : slot + 1] = keys
        self._values[:, :, slot : slot + 1] = values
        return self._keys, self._values

    def _prefill_through_ring(self, keys: Tensor, values: Tensor, new: int) -> tuple[Tensor, Tensor]:
        """The window before the first new token, in order, then the new tokens; a copy as short-lived as the step."""
        past = torch.arange(self.seen - self._visible(), self.seen, device=keys.device) % self._held
        all_keys = torch.cat([self._keys[:, :, past], keys], dim=-2)
        all_values = torch.cat([self._values[:, :, past], values], dim=-2)
        kept = min(new, self._held)
        end = self.seen + new
        slots = torch.arange(end - kept, end, device=keys.device) % self._held
        self._keys[:, :, slots] = keys[:, :, -kept:]
        self._values[:, :, slots] = values[:, :, -kept:]
        return all_keys, all_values

    def _visible(self) -> int:
        """Past tokens that the next token may attend to: the window counts the token itself."""
        return self.seen if self.window is None else min(self.seen, self.window - 1)

    @property
    def _keys(self) -> Tensor:
        return cast(Tensor, self.keys)

    @property
    def _values(self) -> Tensor:
        return cast(Tensor, self.values)

    @override
    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._visible() + query_length, self.seen - self._visible()

    @override
    def get_seq_length(self) -> int:
        return self.seen

    @override
    def get_max_length(self) -> int:
        return -1 if self.window is None else self.window

    @override
    def reset(self) -> None:
        self.seen = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self._keys.nbytes + self._values.nbytes


class IndexedKvLayer(KvLayer):  # type: ignore[no-untyped-call]
    """Full attention that chooses tokens by a key of their own, [1, tokens, D]; DeepSeek's sparse attention.

    The model asks for these keys before or after those of the attention, so both count their tokens.
    """

    def __init__(self, kv: KvShape, context_tokens: int, memory: Tensor, dtype: torch.dtype) -> None:
        """`memory`: uint8, exactly `kv_layer_bytes` long."""
        super().__init__(kv, context_tokens, memory, dtype)
        self.indexed = 0
        stored = memory.view(dtype)[context_tokens * (kv.values_per_token - kv.index_dim) :]
        self.indexer_keys = stored.view(1, context_tokens, kv.index_dim)
        self.indexer_position_ids: Tensor | None = None

    def update_indexer(self, indexer_key_states: Tensor) -> Tensor:
        """Append keys [1, new, D]; all of them so far.

        Raises:
            ContextTooLongError: they do not fit.
        """
        end = self.indexed + indexer_key_states.shape[1]
        if end > self._context_tokens:
            raise ContextTooLongError(prompt_tokens=end, context_tokens=self._context_tokens)
        self.indexer_keys[:, self.indexed : end] = indexer_key_states
        self.indexed = end
        return self.indexer_keys[:, :end]

    @override
    def reset(self) -> None:
        super().reset()
        self.indexed = 0
        self.indexer_position_ids = None

    @property
    @override
    def nbytes(self) -> int:
        return super().nbytes + self.indexer_keys.nbytes
