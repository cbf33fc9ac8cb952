"""Inkling: four short convolutions in every layer with attention, and a learned bias for each distance of two tokens.

Source: transformers 5.24, models/inkling, inkling2, inkling2_loop. Inputs of the convolutions are kept in fp32. Letters
as in families_anatomy.py.
"""

import math
from dataclasses import replace

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import Anatomy, AnatomyRule, DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_full import MLP
from engine.contract.families_rules import every_layer, mlp_kinds, quiet_size_of, required_size
from engine.contract.families_states import layer_kinds
from engine.contract.shape import ExpertShape, KvShape, StateShape, StateTensor

_FULL, _SLIDING = "hybrid", "hybrid_sliding"
_KINDS = layer_kinds(lambda facts, layer, layers: _SLIDING if (layer + 1) % 6 else _FULL, _FULL, _SLIDING)
_MOST_PASSES = 64
_LOOP = {
    "loop_layer_index_start": "core_start",
    "loop_layer_index_end": "core_end",
    "loop_num_passes": "num_passes",
    "loop_gate_rank": "gate_rank",
}
_HEADS = ("num_attention_heads", "num_key_value_heads", "head_dim")


def _kv(facts: ConfigFacts, kind: str) -> KvShape:
    """Sliding layers have head counts and sizes of their own; each distance inside the window has its bias."""
    sliding = kind == _SLIDING
    heads, kv_heads, size = (facts.required(f"swa_{key}" if sliding else key) for key in _HEADS)
    window = _either(facts, "sliding_window_size", "sliding_window") if sliding else None
    return KvShape(
        n_kv_heads=kv_heads,
        key_dim=size,
        value_dim=size,
        window=window,
        n_heads=heads,
        bias_extent=window or facts.required("rel_extent"),
    )


def _either(facts: ConfigFacts, key: str, other: str) -> int:
    """A number that has two names."""
    return facts.optional(other) or facts.required(key)


def _state(facts: ConfigFacts, kv: KvShape, kernel: int) -> StateShape:
    """Newest inputs of the convolutions of keys, of values, behind attention and behind the experts."""
    wide = (kv.n_kv_heads * kv.key_dim,) * 2 + (facts.required("hidden_size"),) * 2
    return StateShape(
        tensors=tuple(StateTensor(kind="convolution", sizes=(size, kernel), dtype="fp32") for size in wide),
        work_values=6 * max(wide) * kernel,
    )


def _projections(facts: ConfigFacts, kv: KvShape) -> int:
    """Queries, keys, values, output; what weighs the profiles, and the profiles."""
    width, values = facts.required("hidden_size"), facts.required("d_rel")
    heads = kv.n_heads or kv.n_kv_heads
    plain = width * (2 * heads * kv.key_dim + 2 * kv.n_kv_heads * kv.key_dim)
    return plain + width * heads * values + values * kv.bias_extent


def _first(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    width, kernel = facts.required("hidden_size"), _either(facts, "conv_kernel_size", "sconv_kernel_size")
    mixers: dict[str, Mixer] = {}
    kinds = _first_kinds(facts, facts.required("num_hidden_layers"))
    for kind in set(kinds):
        kv = _kv(facts, kind)
        convolutions = 2 * kv.n_kv_heads * kv.key_dim * kernel + 2 * width * kernel
        weights = DenseCount(_projections(facts, kv) + 2 * kv.key_dim, convolutions)
        mixers[kind] = Mixer(kv=kv, state=_state(facts, kv, kernel), weights=weights)
    return tuple(mixers[kind] for kind in kinds)


def _first_kinds(facts: ConfigFacts, layers: int) -> tuple[str, ...]:
    """`layer_types`, or the older list of sliding layers."""
    local = facts.numbers("local_layer_ids")
    if facts.given("layer_types") is not None or local is None:
        return _KINDS(facts, layers)
    return tuple(_SLIDING if layer in local else _FULL for layer in range(layers))


def _scales(facts: ConfigFacts, experts: ExpertShape, moe: bool) -> DenseCount:
    """One scale for the block; the router scores the shared experts, too."""
    return DenseCount(_shared(facts) * facts.required("hidden_size"), 1) if moe else DenseCount(1)


def _shared(facts: ConfigFacts) -> int:
    return facts.required("n_shared_experts")


def inkling(facts: ConfigFacts, tied: bool) -> Anatomy:
    """Read an inkling configuration; embedding and output head are never one.

    Raises:
        CannotEstimateError: a fact is missing or of an unknown kind.
        UnsupportedModelError: the model has no routed experts.
    """
    family = _INKLING
    if facts.optional("dense_intermediate_size"):  # published files: the other width is that of the experts then
        family = replace(
            family,
            inner_key="intermediate_size",
            mlp=required_size("dense_intermediate_size"),
            shared=lambda facts: _shared(facts) * facts.required("intermediate_size"),
        )
    return family(facts, False)


def _second(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Output gates, sinks, and residuals that attend to sums of blocks of layers before.

    Layers with full attention read queries, keys and values from different residuals and have convolutions whose
    weights depend on the token.
    """
    width, kernel = facts.required("hidden_size"), _either(facts, "conv_kernel_size", "sconv_kernel_size")
    kinds = _KINDS(facts, facts.required("num_hidden_layers"))
    mixers: dict[str, Mixer] = {}
    for kind in set(kinds):
        kv = _kv(facts, kind).model_copy(update={"writes_scores": True})
        heads, values = kv.n_heads or kv.n_kv_heads, facts.required("d_rel")
        plain = _projections(facts, kv) + width * heads * kv.key_dim + width * heads + heads * (kv.key_dim + values)
        inputs = 2 * kv.n_kv_heads * kv.key_dim * kernel
        dynamic = 2 * width * kv.n_kv_heads * kernel
        plain += 2 * width if kind == _SLIDING else 4 * width + inputs + dynamic
        fp32 = 2 * width * kernel + width + (inputs if kind == _SLIDING else 0)
        mixers[kind] = Mixer(kv=kv, state=_state(facts, kv, kernel), weights=DenseCount(plain, fp32))
    into = {_SLIDING: DenseCount(fp32=width), _FULL: DenseCount(fp32=3 * width)}  # none before the first layer
    return tuple(
        replace(mixers[kind], weights=mixers[kind].weights + (into[kind] if layer else DenseCount()))
        for layer, kind in enumerate(kinds)
    )


def _looped(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Some layers are passed through more than once, each time with tokens and states of their own."""
    mixers = list(_second(facts, family))
    first, last, passes, rank = _loop(facts)
    if not 0 < first < last <= len(mixers):
        raise CannotEstimateError(
            f"config.json loops layers {first} to {last}; the model has {len(mixers)}.",
            CONFIG_FIX,
            fact="loop_layer_index_start",
        )
    if passes > _MOST_PASSES:
        raise CannotEstimateError(
            f"config.json says loop_num_passes = {passes}; more than {_MOST_PASSES} are not believed.",
            CONFIG_FIX,
            fact="loop_num_passes",
        )
    width = facts.required("hidden_size")
    gates = DenseCount(4 * 2 * width * rank, 4 * 2 * rank * width + 4 * width)  # and four queries for messages
    for layer in range(first, last):
        mixers[layer] = replace(mixers[layer], weights=mixers[layer].weights + gates, passes=passes)
    facts.assumptions.append(f"layers {first} to {last - 1} are passed through {passes} times, each with its own cache")
    return tuple(mixers)


def _loop(facts: ConfigFacts) -> tuple[int, int, int, int]:
    """First looped layer, the one behind the last, passes, rank of the gates; older files have a table for them."""
    old = facts.table("loop_config")
    first, last, passes, rank = (old.optional(name) or facts.required(key) for key, name in _LOOP.items())
    return first, last, passes, rank


def _with_blocks(family: Family) -> AnatomyRule:
    """The output head has no rows for padding; what joins the blocks last stays in fp32."""

    def rule(facts: ConfigFacts, tied: bool) -> Anatomy:
        anatomy = family(facts, False)
        width, rows = anatomy.hidden_size, facts.required("unpadded_vocab_size")
        if rows > anatomy.vocab_size:
            raise CannotEstimateError(
                f"config.json says {rows} words of {anatomy.vocab_size}.", CONFIG_FIX, fact="unpadded_vocab_size"
            )
        padding = (anatomy.vocab_size - rows) * width
        blocks = math.ceil(len(anatomy.layers) / facts.required("n_layers_per_attn_res_block"))
        return replace(
            anatomy,
            embedding=anatomy.embedding + DenseCount(-padding, width),
            streams=blocks + 1,
            head_padding=padding,
        )

    return rule


_INKLING = Family(
    vocab_size=201024,
    max_context=131072,
    top_k=6,
    mixers=_first,
    moe=mlp_kinds(quiet_size_of("dense_mlp_idx", 0)),
    mlp=MLP,
    shared=lambda facts: _shared(facts) * facts.required("moe_intermediate_size"),
    correction="fp32",
    more=_scales,
    once=required_size("hidden_size"),
    fp32_names=(
        "attn_sconv",
        "mlp_sconv",
        "k_sconv",
        "v_sconv",
        "e_score_correction_bias",
        "gate.global_scale",
        "gate.bias",
    ),
)
_INKLING2 = Family(
    vocab_size=201024,
    max_context=1048576,
    top_k=8,
    mixers=_second,
    norms=0,
    moe=every_layer,
    router_fp32=True,
    correction="fp32",
    once=required_size("hidden_size"),
    # names in transformers, and in published files
    fp32_names=(
        "e_score_correction_bias", "mlp.gate.weight", "post_attention_convolution", "post_mlp_convolution",
        "sconv.conv1d", "attention_input", "mlp_input", "final_input", "message_input", "message_gate_proj",
        "forget_gate_proj", "mlp.gate.bias", "sconv.weight$", "attn_res.", "middle_cycle", "gain_weight",
        "forget_weight",
    ),
)  # fmt: skip

INKLING_FAMILIES: dict[str, AnatomyRule] = {
    "inkling_text": inkling,
    "inkling2_text": _with_blocks(_INKLING2),
    "inkling2_loop_text": _with_blocks(replace(_INKLING2, mixers=_looped)),
}
