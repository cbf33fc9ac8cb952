"""The cache that MiniMax's lightning attention asks for: states under names of its own, in the same buffers."""

from torch import Tensor
from transformers.models.minimax.modeling_minimax import MiniMaxCache
from typing_extensions import override

from engine.model.kv_cache import KvCache
from engine.model.state_layers import StateLayer


class LightningCache(KvCache, MiniMaxCache):
    """A `KvCache` that the model takes for its own kind.

    transformers counts the tokens of layer 0 even where that layer is linear and counts none; here the first layer
    with attention is asked, so positions are right in every step.
    """

    @override
    def set_linear_cache(self, layer_idx: int, linear_cache: Tensor) -> None:
        """Keep the state of one layer."""
        layer = self._linear(layer_idx)
        layer.update_recurrent_state(linear_cache)
        layer.has_previous_state[0] = True

    @override
    def get_linear_cache(self, layer_idx: int) -> Tensor | None:
        """The state of one layer, or None before the first token."""
        layer = self._linear(layer_idx)
        return layer.recurrent_states[0] if layer.has_previous_state[0] else None

    def _linear(self, layer_idx: int) -> StateLayer:
        layer = self.layers[layer_idx]
        assert isinstance(layer, StateLayer)
        return layer

    @override
    def __len__(self) -> int:
        return len(self.layers)
