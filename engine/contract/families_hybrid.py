"""Families that mix attention with linear attention, Mamba or short convolutions.

tests/engine/contract/test_families.py compares every line of this table with the modules that transformers builds.
"""

from dataclasses import replace

from engine.contract.errors import CannotEstimateError
from engine.contract.families_anatomy import AnatomyRule, DenseCount, Family, Mixer
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_full import GATE, MLP
from engine.contract.families_latent import DEEPSEEK_V3, latent_attention
from engine.contract.families_rules import (
    FULL,
    SLIDING,
    after_dense,
    every_layer,
    mlp_kinds,
    quiet_size_of,
    size_of,
    sparse_step,
)
from engine.contract.families_states import (
    LINEAR,
    bailing_delta,
    delta_net,
    every_nth,
    granite_mamba,
    hybrid,
    kimi_delta,
    layer_kinds,
    lightning,
    mamba_1,
    short_convolution,
    windows_of,
)

_QWEN_KINDS = layer_kinds(every_nth("full_attention_interval", 4), FULL, LINEAR)
_LARA_PATTERN = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
_LARA_KINDS = layer_kinds(lambda facts, layer, layers: _LARA_PATTERN[layer % 5], FULL, SLIDING, LINEAR)


def _no_window(facts: ConfigFacts, layers: int) -> tuple[int | None, ...]:
    return (None,) * layers


def _jamba_kind(facts: ConfigFacts, layer: int, layers: int) -> str:
    period, offset = facts.quiet("attn_layer_period", 8, least=1), facts.quiet("attn_layer_offset", 4)
    return FULL if layer % period == offset else LINEAR


def _jamba_experts(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    period, offset = facts.quiet("expert_layer_period", 2, least=1), facts.quiet("expert_layer_offset", 1)
    return tuple(layer % period == offset for layer in range(layers))


def _kimi_kinds(facts: ConfigFacts, layers: int) -> tuple[str, ...]:
    """`layer_types`, or the older lists of layers, which count from one."""
    table = facts.given("linear_attn_config")
    if facts.given("layer_types") is not None or not isinstance(table, dict) or "full_attn_layers" not in table:
        step = layer_kinds(lambda facts, layer, layers: FULL if layer and layer % 4 == 0 else LINEAR, FULL, LINEAR)
        return step(facts, layers)
    own = ConfigFacts(table, facts.model_type)
    full, linear = own.numbers("full_attn_layers") or (), own.numbers("kda_layers") or ()
    if sorted((*full, *linear)) != list(range(1, layers + 1)):
        raise CannotEstimateError(
            f"linear_attn_config in config.json does not name each of the {layers} layers once.",
            CONFIG_FIX,
            fact="linear_attn_config",
        )
    return tuple(FULL if layer + 1 in full else LINEAR for layer in range(layers))


def _kimi(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    full, linear = latent_attention(facts), kimi_delta(facts)
    kinds = _kimi_kinds(facts, facts.required("num_hidden_layers"))
    return tuple(full if kind == FULL else linear for kind in kinds)


def _bailing(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """Latent attention has a gate of one value per head here."""
    full, linear = latent_attention(facts), bailing_delta(facts)
    gate = DenseCount(facts.required("hidden_size") * facts.required("num_attention_heads"))
    full = replace(full, weights=full.weights + gate)
    kinds = layer_kinds(every_nth("layer_group_size", 6), FULL, LINEAR)(facts, facts.required("num_hidden_layers"))
    return tuple(full if kind == FULL else linear for kind in kinds)


def _qwen(facts: ConfigFacts, family: Family) -> tuple[Mixer, ...]:
    """The output gate is part of the query projection, bias included."""
    mixers = hybrid(_QWEN_KINDS, delta_net)(facts, family)
    if not facts.flag(family.qkv_bias):
        return mixers
    return tuple(
        replace(mixer, weights=mixer.weights + DenseCount((mixer.kv.n_heads or 0) * mixer.kv.key_dim))
        if mixer.kv
        else mixer
        for mixer in mixers
    )


_QWEN_NEXT = Family(
    vocab_size=151936,
    max_context=32768,
    top_k=10,
    mixers=_qwen,
    windows=_no_window,
    head_size="key",
    qk_norm="head",
    out_gate=lambda facts, heads, head_size: heads * head_size,
    moe=sparse_step(),
    mlp=MLP,
    shared=size_of("shared_expert_intermediate_size", 512),
    shared_gate=True,
)

HYBRID_FAMILIES: dict[str, AnatomyRule] = {
    "bailing_hybrid": replace(
        DEEPSEEK_V3,
        vocab_size=157184,
        max_context=262144,
        mixers=_bailing,
        moe=mlp_kinds(quiet_size_of("first_k_dense_replace", 2)),
        fp32_names=(*GATE, "expert_bias", "conv1d", "A_log", "dt_bias"),
    ),
    "granitemoehybrid": Family(
        vocab_size=32000,
        max_context=2048,
        top_k=2,
        mixers=hybrid(layer_kinds(lambda facts, layer, layers: LINEAR, FULL, LINEAR), granite_mamba),
        windows=_no_window,
        all_heads_if_missing=True,
        inner_key="intermediate_size",
        shared=quiet_size_of("shared_intermediate_size", 1024),
    ),
    "jamba": Family(
        vocab_size=65536,
        max_context=262144,
        top_k=2,
        mixers=hybrid(
            lambda facts, layers: tuple(_jamba_kind(facts, layer, layers) for layer in range(layers)), mamba_1
        ),
        windows=_no_window,
        head_size="quotient",
        all_heads_if_missing=True,
        moe=_jamba_experts,
        mlp=MLP,
        inner_key="intermediate_size",
        qkv_bias=False,
        out_bias=False,
    ),
    "kimi_linear": replace(
        DEEPSEEK_V3,
        vocab_size=163840,
        max_context=1048576,
        mixers=_kimi,
        moe=mlp_kinds(quiet_size_of("first_k_dense_replace", 1)),
        fp32_names=(*GATE, "dt_bias"),
    ),
    "lara_mini": Family(
        vocab_size=151936,
        max_context=131072,
        top_k=4,
        mixers=hybrid(_LARA_KINDS, delta_net),
        windows=windows_of(_LARA_KINDS, "sliding_window"),
        head_size="key",
        qk_norm="head",
        shared=size_of("shared_expert_intermediate_size", 512),
    ),
    "lfm2_moe": Family(
        vocab_size=65536,
        max_context=128000,
        top_k=4,
        mixers=hybrid(layer_kinds(None, FULL, "conv"), short_convolution),
        windows=_no_window,
        head_size="quotient",
        qkv_bias=False,
        out_bias=False,
        qk_norm="head",
        moe=after_dense("num_dense_layers", 2),
        mlp=MLP,
        more=lambda facts, experts, moe: DenseCount(
            0, experts.n_experts if moe and facts.flag(("use_expert_bias", True)) else 0
        ),
        fp32_names=("expert_bias",),
    ),
    "minimax": Family(
        vocab_size=32000,
        max_context=131072,
        top_k=2,
        mixers=hybrid(layer_kinds(lambda facts, layer, layers: LINEAR if layer % 2 else FULL, FULL, LINEAR), lightning),
        windows=_no_window,  # a window only limits what is seen; its cache keeps every token
        all_heads_if_missing=True,
        qkv_bias=False,
        out_bias=False,
        moe=every_layer,
        inner_key="intermediate_size",
    ),
    "qwen3_5_moe_text": replace(_QWEN_NEXT, vocab_size=248320, top_k=8, moe=every_layer),
    "qwen3_next": _QWEN_NEXT,
}
