"""dots3 note: latent attention over all tokens with an index, and over a window with other sizes, side by side.

Source: transformers 5.24, models/dots3_note. Published checkpoints say the sizes of sliding layers in keys that begin
with `swa_`; transformers saves them layer by layer.
"""

from dataclasses import replace
from typing import Any

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_full import GATE, MLP
from engine.contract.families_latent import indexed, latent_attention
from engine.contract.families_rules import FULL, SLIDING

_INDEXED = "indexed_attention"
_SLIDING_SIZES = (
    "num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"
)  # fmt: skip


def _mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    kinds = _kinds(facts, facts.required("num_hidden_layers"))
    known: dict[tuple[str, str], Mixer] = {}
    mixers = []
    for layer, kind in enumerate(kinds):
        own = _sizes(facts, layer, kind)
        key = kind, str(own)
        if key not in known:
            known[key] = _mixer(facts.replaced(**own), kind)
        mixers.append(known[key])
    return tuple(mixers)


def _mixer(facts: ConfigFacts, kind: str) -> Mixer:
    """Beside the usual latent attention a norm of rotated keys, a gate per head, and an index or a window."""
    query_rank = facts.required("q_lora_rank")  # without it this family cannot be built
    plain = latent_attention(facts)
    assert plain.kv is not None
    heads = facts.required("num_attention_heads")
    weights = plain.weights + DenseCount(facts.required("qk_rope_head_dim") + facts.required("hidden_size") * heads)
    if kind == SLIDING:
        return Mixer(kv=plain.kv.model_copy(update={"window": _window(facts)}), weights=weights)
    if kind == FULL:
        return replace(plain, weights=weights)
    size, index_heads, more = indexed(facts, query_rank)
    kv = plain.kv.model_copy(update={"index_dim": size, "index_heads": index_heads})
    return Mixer(kv=kv, weights=weights + more)


def _window(facts: ConfigFacts) -> int:
    return facts.optional("sliding_window") or facts.optional("sliding_window_size") or facts.required("sliding_window")


def _kinds(facts: ConfigFacts, layers: int) -> tuple[str, ...]:
    """`layer_types`, where full and indexed are one word until `use_dsa` tells them apart."""
    by_default = None if facts.has("per_layer_config") else True
    use_index = by_default if facts.given("use_dsa") is None else facts.flag(("use_dsa", True))
    slides = facts.flag(("use_sliding_window", True))
    given = facts.names("layer_types", layers)
    full = FULL if use_index is False else _INDEXED
    kinds = given or tuple(SLIDING if slides and i >= 2 and i % 4 != 1 else full for i in range(layers))
    for kind in kinds:
        if kind not in (FULL, SLIDING, _INDEXED):
            raise CannotEstimateError(
                f"layer_types names {kind}, which {facts.model_type} models do not have.",
                CONFIG_FIX,
                fact="layer_types",
            )
    if use_index is None:
        return kinds
    return tuple(kind if kind == SLIDING else full for kind in kinds)


def _sizes(facts: ConfigFacts, layer: int, kind: str) -> dict[str, Any]:
    """What a layer has otherwise than the others."""
    per_layer = facts.given("per_layer_config")
    if per_layer is not None:
        own = per_layer.get(str(layer), {}) if isinstance(per_layer, dict) else None
        if not isinstance(own, dict):
            raise CannotEstimateError(
                f"per_layer_config in config.json has no table for layer {layer}.",
                CONFIG_FIX,
                fact="per_layer_config",
            )
        return {str(name): value for name, value in own.items()}
    if kind != SLIDING:
        return {}
    own = {name: facts.required(f"swa_{name}") for name in _SLIDING_SIZES}
    rope = facts.optional("swa_qk_rope_head_dim")
    if rope is None:
        rope = facts.required("swa_head_dim") - own["qk_nope_head_dim"]
    return own | {"qk_rope_head_dim": rope}


def _experts(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """`mlp_layer_types`, or the first dense layers and a step or a list of yes and no."""
    kinds = facts.names("mlp_layer_types", layers)
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    dense = facts.quiet("first_k_dense_replace", 1)
    if isinstance(facts.given("moe_layer_freq"), list):
        listed = facts.numbers("moe_layer_freq") or ()
        if len(listed) < layers:
            raise CannotEstimateError(
                f"moe_layer_freq in config.json names {len(listed)} layers; the model has {layers}.",
                CONFIG_FIX,
                fact="moe_layer_freq",
            )
        return tuple(layer >= dense and bool(listed[layer]) for layer in range(layers))
    step = facts.quiet("moe_layer_freq", 1, least=1)
    return tuple(layer >= dense and layer % step == 0 for layer in range(layers))


def _shared(facts: ConfigFacts) -> int:
    width = facts.optional("moe_shared_expert_intermediate_size") or facts.required("shared_experts_intermediate_size")
    return facts.quiet("n_shared_experts", 1) * width


DOTS3_NOTE = Family(
    vocab_size=152064,
    max_context=524288,
    top_k=8,
    mixers=_mixers,
    moe=_experts,
    mlp=MLP,
    shared=_shared,
    router_fp32=True,
    correction="fp32",
    fp32_names=GATE,
)
