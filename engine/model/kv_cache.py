"""What a sequence leaves behind, layer by layer: allocated once, exactly as the plan counts it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DummyLayer,
    DynamicCache,
    LinearAttentionCacheLayerMixin,
)
from typing_extensions import override

from engine.banks.devices import Device
from engine.contract.errors import PlanMismatchError
from engine.contract.estimate import (
    kv_cache_bytes,
    kv_layer_bytes,
    prefix_slots,
    snapshot_bytes,
    state_bytes,
    state_tensor_bytes,
    unpacked_kv_bytes,
)
from engine.contract.ledger import KV_CACHE, STATE, UNPACKED_KV
from engine.contract.shape import LayerShape, ModelShape, StateTensor
from engine.model.dense import model_class
from engine.model.index_layers import attention_layer, has_index
from engine.model.kv_layers import KvArguments
from engine.model.pooled_layers import PooledKvLayer, check_pools, is_pending
from engine.model.prefix import Move
from engine.model.snapshots import Snapshots
from engine.model.state_layers import IndexedKvStateLayer, KvStateLayer, StateLayer


class KvCache(Cache):
    """All layers, on the device that computes attention."""

    def __init__(self, shape: ModelShape, context_tokens: int, device: Device, dtype: torch.dtype) -> None:
        """Allocate every buffer.

        Raises:
            PlanMismatchError: the bytes are not those of the plan.
            NotEnoughVramError: they do not fit.
        """
        value_bytes = shape.value_bytes
        if dtype.itemsize != value_bytes:
            raise PlanMismatchError(
                f"The model computes in {dtype}, {dtype.itemsize} B a value; the plan counts {value_bytes} B.",
                "Plan the start again.",
            )
        self._device = device
        self.context_tokens = context_tokens
        self._dtype = dtype
        self._value_bytes = value_bytes
        self.nbytes = 0
        self.state_nbytes = 0
        size = unpacked_kv_bytes(shape, context_tokens)
        self._unpacked = device.allocate(size, UNPACKED_KV) if size else None
        layers = [self._layer(layer) for layer in shape.cached_layers]
        _must_equal(KV_CACHE, self.nbytes, kv_cache_bytes(shape, context_tokens))
        _must_equal(STATE, self.state_nbytes, state_bytes(shape))
        self.slots = prefix_slots(shape)
        self.snapshots = Snapshots(self.slots or 0, snapshot_bytes(shape, context_tokens), layers)
        Cache.__init__(self, layers=layers)  # not super(): a model may ask for a kind of cache that is built otherwise

    @property
    def unpacked_nbytes(self) -> int:
        """Room in which keys and values in fp8 are unpacked; 0 where none are."""
        return 0 if self._unpacked is None else self._unpacked.nbytes

    def _layer(self, layer: LayerShape) -> Any:
        if layer.kv is None and layer.state is None:
            return DummyLayer()  # type: ignore[no-untyped-call]
        if layer.kv and layer.kv.keys_are_values:
            waiting = layer.state.tensors if layer.state else ()
            return PooledKvLayer(*self._kv(layer)[:4], [self._state(tensor) for tensor in waiting])
        if layer.kv and layer.state is None:
            return attention_layer(layer.kv)(*self._kv(layer))
        assert layer.state is not None
        buffers = [self._state(tensor) for tensor in layer.state.tensors]
        if layer.kv is None:
            return StateLayer(layer.state, buffers)
        both = IndexedKvStateLayer if layer.kv.index_dim else KvStateLayer
        return both(layer.state, buffers, self._kv(layer))

    def _kv(self, layer: LayerShape) -> KvArguments:
        assert layer.kv is not None
        memory = self._device.allocate(kv_layer_bytes(layer.kv, self.context_tokens, self._value_bytes), KV_CACHE)
        self.nbytes += memory.nbytes
        unpacked = self._unpacked if layer.kv.fp8 else None
        return layer.kv, self.context_tokens, memory, self._dtype, unpacked

    def _state(self, tensor: StateTensor) -> Tensor:
        dtype = {"model": self._dtype, "fp32": torch.float32, "int64": torch.int64}[tensor.dtype]
        memory = self._device.allocate(state_tensor_bytes(tensor, self._value_bytes), STATE)
        self.state_nbytes += memory.nbytes
        return memory.view(dtype).view(1, *tensor.sizes)

    @override
    def reset(self) -> None:
        """Forget the sequence; the buffers stay and are written over."""
        for layer in self.layers:
            layer.reset()

    def move(self, moves: Iterable[Move]) -> None:
        """Copy tokens of full attention to other places."""
        for move in moves:
            for layer in self._kept_layers():
                layer.move(move.source, move.target, move.tokens)

    def seek(self, place: int, tokens: int) -> None:
        """Go on with the sequence at `place` of the pool that has so many tokens; windows and states are not touched.

        Without tokens everything begins anew.
        """
        if not tokens:
            self.reset()
        for layer in self._kept_layers():
            layer.seek(place, tokens)

    def _kept_layers(self) -> list[Any]:
        return [layer for layer in self.layers if not isinstance(layer, DummyLayer)]

    def close(self) -> None:
        """Give the buffers back."""
        self.snapshots.close()
        if self.layers:
            self.layers = []
            unpacked, self._unpacked = self.unpacked_nbytes, None
            for size, what in ((self.nbytes, KV_CACHE), (unpacked, UNPACKED_KV), (self.state_nbytes, STATE)):
                if size:
                    self._device.release(size, what)


def _must_equal(what: str, actual: int, planned: int) -> None:
    if actual != planned:
        raise PlanMismatchError(
            f"The {what} takes {actual:,} B; the plan counts {planned:,} B.",
            "Plan the start again.",
            actual_bytes=actual,
            planned_bytes=planned,
        )


def cache_for(config: Any, shape: ModelShape, context_tokens: int, device: Device, dtype: torch.dtype) -> KvCache:
    """The cache of a model; a few ask for a kind of their own.

    Raises:
        PlanMismatchError: the bytes are not those of the plan.
        NotEnoughVramError: they do not fit.
    """
    if config.get_text_config().model_type == "minimax":
        from engine.model.lightning_cache import LightningCache

        return LightningCache(shape, context_tokens, device, dtype)
    return KvCache(shape, context_tokens, device, dtype)


def check_layers(config: Any, shape: ModelShape) -> None:
    """Compare the plan's windows and kinds of layers with those that transformers' own cache would use.

    Raises:
        PlanMismatchError: a layer differs, so that the cache would forget too early or the plan counts too much.
    """
    model_class(config)  # transformers knows a family's own cache layers once its code is imported
    stock: list[Any] = list(DynamicCache(config=config).layers)
    for layer, theirs in zip(shape.cached_layers, stock, strict=False):
        window = getattr(theirs, "sliding_window", None)
        if layer.kv is not None and window != layer.kv.window:
            raise PlanMismatchError(
                f"Layer {layer.index} attends to a window of {window or 'all'} tokens; the plan counts "
                f"{layer.kv.window or 'all'}.",
                "Plan the start again.",
                layer=layer.index,
            )
        indexed = layer.kv is not None and layer.kv.index_dim > 0
        kept = (
            isinstance(theirs, CacheLayerMixin),
            isinstance(theirs, LinearAttentionCacheLayerMixin),
            indexed and has_index(theirs),  # it has one too where the index of another layer is used
        )
        if layer.kv is not None:
            check_pools(theirs, layer)
        planned = (layer.kv is not None, layer.state is not None and not is_pending(layer.state), indexed)
        if kept != planned:
            raise PlanMismatchError(
                f"Layer {layer.index} keeps {_kept_words(kept)}; the plan counts {_kept_words(planned)}.",
                "Plan the start again.",
                layer=layer.index,
            )


def _kept_words(kept: tuple[bool, ...]) -> str:
    words = [word for word, there in zip(("keys and values", "a state", "an index"), kept, strict=True) if there]
    return " and ".join(words) or "nothing"
