"""Gemma 4: two head layouts, shared KV layers, and in every layer a dense block beside the routed experts.

Source: transformers 5.24, models/gemma4.
"""

from typing import Any

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, DenseCount, gated_mlp, require_experts
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_rules import layer_windows
from engine.contract.shape import ExpertShape, KvShape, LayerShape

_WINDOWS = layer_windows(512, lambda facts, layer, layers: (layer + 1) % 6 != 0 and layer + 1 != layers)


def gemma4(facts: ConfigFacts, tied: bool) -> Anatomy:
    """Read a gemma4 text configuration.

    Raises:
        CannotEstimateError: a fact is missing or of an unknown kind.
        UnsupportedModelError: the model has no routed experts.
    """
    require_experts(facts, facts.flag(("enable_moe_block", False)))
    if facts.given("use_bidirectional_attention") == "all":
        raise CannotEstimateError("This Gemma model reads both ways; it generates no text.", "Choose another model.")
    width = facts.required("hidden_size")
    heads = facts.required("num_attention_heads")
    layers = facts.required("num_hidden_layers")
    shared = facts.quiet("num_kv_shared_layers", 0)
    windows = _windows(facts, layers)
    experts = ExpertShape(
        n_experts=facts.required("num_experts"),
        top_k=facts.required("num_experts_per_tok"),
        width=width,
        inner=facts.required("moe_intermediate_size"),
    )
    shapes: list[LayerShape] = []
    body = DenseCount()
    for index, window in enumerate(windows):
        head_size, kv_heads = _head_layout(facts, index, window)
        owns_kv = index < layers - shared
        kv = KvShape(n_kv_heads=kv_heads, key_dim=head_size, value_dim=head_size, window=window, n_heads=heads)
        shapes.append(LayerShape(index=index, kv=kv if owns_kv else None, moe=True))
        keys_are_values = facts.flag(("attention_k_eq_v", False)) and window is None
        body += _attention(facts, width, heads * head_size, kv_heads * head_size, head_size, owns_kv, keys_are_values)
        body += _feed_forward(facts, experts, double=not owns_kv and facts.flag(("use_double_wide_mlp", False)))
    vocab = facts.assumed("vocab_size", 262144, least=1)
    return Anatomy(
        layers=tuple(shapes),
        experts=experts,
        hidden_size=width,
        vocab_size=vocab,
        max_context_tokens=facts.assumed("max_position_embeddings", 131072, least=1),
        embedding=DenseCount(vocab * width * (1 if tied else 2) + width + _per_layer_inputs(facts, width, layers)),
        body=body,
        tied=tied,
    )


def _windows(facts: ConfigFacts, layers: int) -> tuple[int | None, ...]:
    """The last layer is always full, whatever `layer_types` says."""
    return (*_WINDOWS(facts, layers)[:-1], None)


def _head_layout(facts: ConfigFacts, index: int, window: int | None) -> tuple[int, int]:
    """Head size and KV heads: full layers have their own, written in the old keys or per layer."""
    head_size, kv_heads = facts.required("head_dim"), facts.required("num_key_value_heads")
    per_layer = facts.given("per_layer_config")
    if per_layer is not None:
        return _override(per_layer, index, "head_dim", head_size), _override(
            per_layer, index, "num_key_value_heads", kv_heads
        )
    if window is not None:
        return head_size, kv_heads
    if facts.flag(("attention_k_eq_v", False)):
        kv_heads = facts.optional("num_global_key_value_heads") or kv_heads
    return facts.quiet("global_head_dim", 512, least=1), kv_heads


def _override(per_layer: Any, index: int, key: str, default: int) -> int:
    if not isinstance(per_layer, dict):
        raise CannotEstimateError(
            "per_layer_config in config.json is not a table.", CONFIG_FIX, fact="per_layer_config"
        )
    own = per_layer.get(str(index), {})
    value = own.get(key, default) if isinstance(own, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CannotEstimateError(
            f"per_layer_config in config.json says {key} = {value!r:.60} for layer {index}.",
            CONFIG_FIX,
            fact="per_layer_config",
        )
    return value


def _attention(
    facts: ConfigFacts, width: int, queries: int, keys: int, head_size: int, owns_kv: bool, keys_are_values: bool
) -> DenseCount:
    bias = facts.flag(("attention_bias", False))
    projections = 0 if not owns_kv else 1 if keys_are_values else 2
    plain = width * (2 * queries + projections * keys) + head_size * (2 if owns_kv else 1)
    return DenseCount(plain + (queries + projections * keys + width if bias else 0))


def _feed_forward(facts: ConfigFacts, experts: ExpertShape, *, double: bool) -> DenseCount:
    """Dense block, router with its scales, seven norms, one layer scalar, and the per-layer input if there is one."""
    width = experts.width
    inner = facts.required("intermediate_size") * (2 if double else 1)
    router = experts.n_experts * width + width + experts.n_experts
    side = facts.quiet("hidden_size_per_layer_input", 256)
    per_layer_input = 2 * width * side + width if side else 0
    return DenseCount(gated_mlp(width, inner) + router + 7 * width + 1 + per_layer_input)


def _per_layer_inputs(facts: ConfigFacts, width: int, layers: int) -> int:
    """The second embedding table of the small Gemma models, with its projection and norm."""
    side = facts.quiet("hidden_size_per_layer_input", 256)
    if not side:
        return 0
    return layers * side * (facts.quiet("vocab_size_per_layer_input", 262144) + width) + side
