"""Step 3.7: sliding layers with more query heads than full ones, a gate per head, experts with limited activations.

Source: transformers 5.24, models/step3p7. Lists of layers may go on with layers that guess tokens ahead.
"""

from typing import Any

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_rules import FULL, SLIDING, required_size
from engine.contract.families_states import layer_kinds
from engine.contract.shape import KvShape

_KINDS = layer_kinds(lambda facts, layer, layers: FULL, FULL, SLIDING)


def _mixers(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Sliding layers may have another number of query heads; every head has a gate."""
    width, head_size = facts.required("hidden_size"), facts.required("head_dim")
    heads, kv_heads = facts.required("num_attention_heads"), facts.required("num_key_value_heads")
    sliding_window = facts.required("sliding_window")  # transformers needs it even where no layer slides
    bias = facts.flag(("attention_bias", False))
    mixers = []
    for index, kind in enumerate(_KINDS(facts, facts.required("num_hidden_layers"))):
        window = sliding_window if kind == SLIDING else None
        queries = heads if window is None else _sliding_heads(facts, index, heads)
        kv = KvShape(n_kv_heads=kv_heads, key_dim=head_size, value_dim=head_size, window=window, n_heads=queries)
        plain = width * (2 * (queries + kv_heads) * head_size + queries) + 2 * head_size
        plain += (queries + 2 * kv_heads) * head_size + width if bias else 0
        mixers.append(Mixer(kv=kv, weights=DenseCount(plain)))
    return tuple(mixers)


def _sliding_heads(facts: ConfigFacts, index: int, heads: int) -> int:
    """Query heads of a sliding layer: its own entry, or one of two keys for all of them."""
    per_layer = facts.given("per_layer_config")
    table: Any
    if isinstance(per_layer, dict):
        table = per_layer.get(str(index), {})
    elif (given := facts.optional("num_sliding_attention_heads")) is not None:
        return given
    else:
        table = facts.given("attention_other_setting") or {}
    if not isinstance(table, dict):
        raise CannotEstimateError(
            f"config.json says in no table how many heads layer {index} has.",
            CONFIG_FIX,
            fact="num_attention_heads",
        )
    return ConfigFacts(table, facts.model_type).optional("num_attention_heads") or heads


def _experts(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    """`mlp_layer_types`, or the numbers in `moe_layers_enum`; without both, all layers behind the third."""
    kinds = facts.names("mlp_layer_types", layers)
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    given = facts.given("moe_layers_enum")
    words = given.split(",") if isinstance(given, str) else given
    if words is None:
        return tuple(layer >= 3 for layer in range(layers))
    if not isinstance(words, list) or not all(f"{word}".strip().isdecimal() for word in words if f"{word}".strip()):
        raise CannotEstimateError(
            f"config.json says moe_layers_enum = {given!r:.60}.", CONFIG_FIX, fact="moe_layers_enum"
        )
    numbers = {int(f"{word}"[:9]) for word in words if f"{word}".strip()}
    return tuple(layer in numbers for layer in range(layers))


_STEP = Family(
    vocab_size=128815,
    max_context=128000,
    top_k=8,
    mixers=_mixers,
    moe=_experts,
    mlp=required_size("intermediate_size"),
    mlp_bias=("mlp_bias", False),
    shared=required_size("share_expert_dim"),
    correction="plain",
)


def step3p5(facts: ConfigFacts, tied: bool) -> Anatomy:
    """Read the text part of a step3p7 configuration; lists may go on with layers that guess tokens ahead.

    Raises:
        CannotEstimateError: a fact is missing or of an unknown kind.
        UnsupportedModelError: the model has no routed experts.
    """
    layers, ahead = facts.required("num_hidden_layers"), facts.quiet("num_nextn_predict_layers", 0)
    return _STEP(facts.shortened(("layer_types", "mlp_layer_types"), layers, ahead), tied)
