"""Cache layers of attention: keys and values in buffers of fixed size, allocated once, attended to without padding."""

from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin
from typing_extensions import override

from engine.contract.errors import ContextTooLongError
from engine.contract.shape import KvShape
from engine.model.kv_rows import FP8, Fp8Rows, PlainRows, Rows, move_rows

KvArguments = tuple[KvShape, int, Tensor, torch.dtype, Tensor | None]  # of `KvLayer`, in order


class KvLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one attention layer in a buffer of fixed size, [1, K, held tokens, D].

    Full attention: tokens lie in order and `update` returns the used part of the buffer. A sliding layer holds the last
    `window` tokens as a ring, token t at t mod window. While one token is decoded the whole ring is returned, not in
    order: keys carry their position already and attention sums over them in any order. Prefill gets them in order.

    Latent attention stores its latent as keys and the rotated part as values, one head each; nothing here differs.

    Full attention shares its buffer between sequences: `seek` says where the current one begins and how much of it is
    there already. A ring holds one sequence; `state_parts` is all of it, for a copy.
    """

    is_croppable = False
    supports_early_init = False

    def __init__(
        self, kv: KvShape, context_tokens: int, memory: Tensor, dtype: torch.dtype, unpacked: Tensor | None = None
    ) -> None:
        """`memory`: uint8, exactly `kv_layer_bytes` long; `unpacked`: where to unpack, if it is stored in fp8."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_sliding = kv.window is not None
        self.window = kv.window
        self.seen = 0
        self._place = 0
        self._memory = memory
        # a mask that hides what lies before the current part, or biases of distances
        self._in_order = kv.chunked or kv.bias_extent > 0
        self._context_tokens = context_tokens
        self._held = context_tokens if kv.window is None else min(context_tokens, kv.window)
        if unpacked is None:
            self._rows = _plain_rows(kv, self._held, memory.view(dtype))
        else:
            self._rows = _fp8_rows(kv, self._held, memory, unpacked.view(dtype))
        self.keys, self.values = (rows.stored for rows in self._rows)
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
        at = self._place + self.seen
        self._write(slice(at, at + new), keys, values)
        return self._read(slice(self._place, at + new))

    def _decode_in_ring(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        slot = self.seen % self._held
        self._write(slice(slot, slot + 1), keys, values)
        return self._read(slice(None))

    def _prefill_through_ring(self, keys: Tensor, values: Tensor, new: int) -> tuple[Tensor, Tensor]:
        """The window before the first new token, in order, then the new tokens; a copy as short-lived as the step."""
        past = torch.arange(self.seen - self._visible(), self.seen, device=keys.device) % self._held
        past_keys, past_values = self._read(past)
        new_keys, new_values = self._rows[0].as_stored(keys), self._rows[1].as_stored(values)
        all_keys, all_values = torch.cat([past_keys, new_keys], dim=-2), torch.cat([past_values, new_values], dim=-2)
        kept = min(new, self._held)
        end = self.seen + new
        slots = torch.arange(end - kept, end, device=keys.device) % self._held
        self._write(slots, keys[:, :, -kept:], values[:, :, -kept:])
        return all_keys, all_values

    def _write(self, places: slice | Tensor, keys: Tensor, values: Tensor) -> None:
        self._rows[0].write(places, keys)
        self._rows[1].write(places, values)

    def _read(self, places: slice | Tensor) -> tuple[Tensor, Tensor]:
        return self._rows[0].read(places), self._rows[1].read(places)

    def seek(self, place: int, tokens: int) -> None:
        """Go on with the sequence that begins at `place` of the buffer and has so many tokens."""
        self.seen = tokens
        self._place = place if self.window is None else 0

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy tokens to other places of the buffer; a ring has no places."""
        if self.window is None:
            for rows in self._rows:
                rows.move(source, target, tokens)

    def state_parts(self) -> list[Tensor]:
        """Memory that belongs to the current sequence alone, as bytes."""
        return [] if self.window is None else [self._memory]

    def _visible(self) -> int:
        """Past tokens that the next token may attend to: the window counts the token itself."""
        return self.seen if self.window is None else min(self.seen, self.window - 1)

    @property
    def _keys(self) -> Tensor:
        return cast(Tensor, self.keys)

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
        self.seek(0, 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return sum(rows.nbytes for rows in self._rows)


def _plain_rows(kv: KvShape, held: int, memory: Tensor) -> tuple[Rows, Rows]:
    """Keys [1, K, held, Dk], then values [1, K, held, Dv]."""
    heads, keys = kv.n_kv_heads, held * kv.n_kv_heads * kv.key_dim
    end = keys + held * heads * kv.value_dim
    return (
        PlainRows(memory[:keys].view(1, heads, held, kv.key_dim)),
        PlainRows(memory[keys:end].view(1, heads, held, kv.value_dim)),
    )


def _fp8_rows(kv: KvShape, held: int, memory: Tensor, unpacked: Tensor) -> tuple[Rows, Rows]:
    """Scales of keys and of values, [1, K, held, 1] bf16 each, then keys and values as e4m3."""
    rows = held * kv.n_kv_heads
    sizes = (2 * rows, 2 * rows, rows * kv.key_dim, rows * kv.value_dim)
    key_scales, value_scales, keys, values = torch.split(memory, list(sizes))
    key_space, value_space = unpacked[: sizes[2]], unpacked[sizes[2] : sizes[2] + sizes[3]]
    shape = (1, kv.n_kv_heads, held)
    return (
        Fp8Rows(keys.view(FP8).view(*shape, kv.key_dim), _scales(key_scales, shape), key_space),
        Fp8Rows(values.view(FP8).view(*shape, kv.value_dim), _scales(value_scales, shape), value_space),
    )


def _scales(memory: Tensor, shape: tuple[int, int, int]) -> Tensor:
    return memory.view(torch.bfloat16).view(*shape, 1)


class IndexedKvLayer(KvLayer):  # type: ignore[no-untyped-call]
    """Full attention that chooses tokens by a key of their own, [1, tokens, D]; DeepSeek's sparse attention.

    The model asks for these keys before or after those of the attention, so both count their tokens.
    """

    def __init__(
        self, kv: KvShape, context_tokens: int, memory: Tensor, dtype: torch.dtype, unpacked: Tensor | None = None
    ) -> None:
        """`memory`: uint8, exactly `kv_layer_bytes` long; it is not stored in fp8, so there is nothing to unpack."""
        assert unpacked is None
        super().__init__(kv, context_tokens, memory, dtype)
        self.indexed = 0
        stored = memory.view(dtype)[context_tokens * (kv.values_per_token - kv.index_dim) :]
        self.indexer_keys = stored.view(1, context_tokens, kv.index_dim)
        self.indexer_position_ids: Tensor | None = None  # [axes, 1, tokens], where the model keeps them here
        self._position_axes = 0  # known once it did

    def update_indexer(self, indexer_key_states: Tensor) -> Tensor:
        """Append keys [1, new, D]; all of them so far.

        Raises:
            ContextTooLongError: they do not fit.
        """
        end = self.indexed + indexer_key_states.shape[1]
        if end > self._context_tokens:
            raise ContextTooLongError(prompt_tokens=end, context_tokens=self._context_tokens)
        self.indexer_keys[:, self._place + self.indexed : self._place + end] = indexer_key_states
        self.indexed = end
        return self.indexer_keys[:, self._place : self._place + end]

    @override
    def seek(self, place: int, tokens: int) -> None:
        super().seek(place, tokens)
        self.indexed = tokens
        if self.indexer_position_ids is not None:
            self._position_axes = self.indexer_position_ids.shape[0]
        if self._position_axes:  # the positions of a text are its numbers in every axis
            numbers = torch.arange(tokens, device=self.indexer_keys.device)
            self.indexer_position_ids = numbers.expand(self._position_axes, 1, tokens)

    @override
    def move(self, source: int, target: int, tokens: int) -> None:
        super().move(source, target, tokens)
        move_rows(self.indexer_keys, source, target, tokens)

    @property
    @override
    def nbytes(self) -> int:
        return super().nbytes + self.indexer_keys.nbytes
