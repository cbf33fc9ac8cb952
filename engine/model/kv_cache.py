"""The KV cache of one sequence: allocated once, exactly as the plan counts it, and attended to without padding."""

from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DummyLayer, DynamicCache
from typing_extensions import override

from engine.banks.devices import Device
from engine.contract.errors import ContextTooLongError, PlanMismatchError
from engine.contract.estimate import kv_cache_bytes, kv_layer_bytes, kv_value_bytes
from engine.contract.shape import KvShape, ModelShape

KV_CACHE = "KV cache"  # purpose in the device's ledger, as in the contract


class KvLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one attention layer in a buffer of fixed size, [1, K, held tokens, D].

    Full attention: tokens lie in order and `update` returns the used part of the buffer. A sliding layer holds the last
    `window` tokens as a ring, token t at t mod window. While one token is decoded the whole ring is returned, not in
    order: keys carry their position already and attention sums over them in any order. Prefill gets them in order.
    """

    is_croppable = False
    supports_early_init = False

    def __init__(self, kv: KvShape, context_tokens: int, memory: Tensor, dtype: torch.dtype) -> None:
        """`memory`: uint8, exactly `kv_layer_bytes` long."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_sliding = kv.window is not None
        self.window = kv.window
        self.seen = 0
        self._context_tokens = context_tokens
        self._held = context_tokens if kv.window is None else min(context_tokens, kv.window)
        heads, keys = kv.n_kv_heads, self._held * kv.n_kv_heads * kv.key_dim
        values = memory.view(dtype)
        self.keys = values[:keys].view(1, heads, self._held, kv.key_dim)
        self.values = values[keys:].view(1, heads, self._held, kv.value_dim)
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
        elif new == 1:
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


class KvCache(Cache):
    """All layers, on the device that computes attention."""

    def __init__(self, shape: ModelShape, context_tokens: int, device: Device, dtype: torch.dtype) -> None:
        """Allocate every buffer.

        Raises:
            PlanMismatchError: the bytes are not those of the plan.
            NotEnoughVramError: they do not fit.
        """
        value_bytes = kv_value_bytes(shape)
        if dtype.itemsize != value_bytes:
            raise PlanMismatchError(
                f"The model computes in {dtype}, {dtype.itemsize} B a value; the plan counts {value_bytes} B.",
                "Plan the start again.",
            )
        self._device = device
        layers: list[Any] = []
        self.nbytes = 0
        for layer in shape.layers:
            if layer.kv is None:
                layers.append(DummyLayer())  # type: ignore[no-untyped-call]
                continue
            memory = device.allocate(kv_layer_bytes(layer.kv, context_tokens, value_bytes), KV_CACHE)
            layers.append(KvLayer(layer.kv, context_tokens, memory, dtype))
            self.nbytes += layers[-1].nbytes
        planned = kv_cache_bytes(shape, context_tokens)
        if self.nbytes != planned:
            raise PlanMismatchError(
                f"The KV cache takes {self.nbytes:,} B; the plan counts {planned:,} B.",
                "Plan the start again.",
                actual_bytes=self.nbytes,
                planned_bytes=planned,
            )
        super().__init__(layers=layers)

    @override
    def reset(self) -> None:
        """Forget the sequence; the buffers stay and are written over."""
        for layer in self.layers:
            layer.reset()

    def close(self) -> None:
        """Give the buffers back."""
        if self.layers:
            self.layers = []
            self._device.release(self.nbytes, KV_CACHE)


def check_windows(config: Any, shape: ModelShape) -> None:
    """Compare the plan's sliding windows with those that transformers' own cache would use.

    Raises:
        PlanMismatchError: a layer differs, so that the cache would forget too early or the plan counts too much.
    """
    stock = DynamicCache(config=config).layers
    for layer in shape.layers:
        if layer.kv is None or layer.index >= len(stock):
            continue
        window = getattr(stock[layer.index], "sliding_window", None)
        if window != layer.kv.window:
            raise PlanMismatchError(
                f"Layer {layer.index} attends to a window of {window or 'all'} tokens; the plan counts "
                f"{layer.kv.window or 'all'}.",
                "Plan the start again.",
                layer=layer.index,
            )
