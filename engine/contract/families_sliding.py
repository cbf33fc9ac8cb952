"""Families some of whose layers may see only a window of the newest tokens.

tests/engine/contract/test_families.py compares every line of this table with the modules that transformers builds.
"""

from dataclasses import replace

from engine.contract.families_anatomy import AnatomyRule, DenseCount, Family
from engine.contract.families_facts import ConfigFacts
from engine.contract.families_full import GATE, GRANITE, MLP
from engine.contract.families_gemma4 import gemma4
from engine.contract.families_rules import (
    after_dense,
    layer_windows,
    mlp_kinds,
    one_window,
    pattern,
    quiet_size_of,
    required_size,
    shared_experts,
    size_of,
    sparse_step,
    window_if_used,
)
from engine.contract.shape import ExpertShape


def _qwen2_slides(facts: ConfigFacts, layer: int, layers: int) -> bool:
    used = facts.flag(("use_sliding_window", False))
    return used and layer % 2 == 0 and layer < facts.quiet("max_window_layers", 28)


def _cohere2_slides(facts: ConfigFacts, layer: int, layers: int) -> bool:
    """Dense layers at the start follow a pattern of their own."""
    dense = facts.quiet("first_k_dense_replace", 0)
    if layer < dense:
        return (layer + 1) % facts.quiet("prefix_dense_sliding_window_pattern", 1, least=1) != 0
    return (layer - dense + 1) % facts.quiet("sliding_window_pattern", 4, least=1) != 0


def _exaone_slides(facts: ConfigFacts, layer: int, layers: int) -> bool:
    windowed = not facts.has("sliding_window") or facts.given("sliding_window") is not None
    return windowed and (layer + 1) % facts.quiet("sliding_window_pattern", 4, least=1) != 0


def _cohere2_dense_width(facts: ConfigFacts) -> int:
    return facts.optional("prefix_dense_intermediate_size") or facts.required("intermediate_size")


def _laguna_gate(facts: ConfigFacts, heads: int, head_size: int) -> int:
    """One gate value per head, or one per channel."""
    per_head = facts.given("gating") in (None, True, "per-head")
    return heads if per_head else heads * head_size


def _wide_gate(facts: ConfigFacts, heads: int, head_size: int) -> int:
    return heads * head_size


def _muse_spark_more(facts: ConfigFacts, experts: ExpertShape, moe: bool) -> DenseCount:
    """Two residual gates of M in fp32; around the experts a projection in and out, each with a norm."""
    width = facts.required("hidden_size")
    projections = 2 * width * experts.width + 2 * experts.width if moe else 0
    return DenseCount(projections, 2 * width)


def _llama4_windows(facts: ConfigFacts, layers: int) -> tuple[int | None, ...]:
    """Layers without rotation see all tokens; the others one chunk, of which the cache keeps the newest tokens."""
    kinds = facts.names("layer_types", layers)
    chunk = None if facts.has("attention_chunk_size") and facts.given("attention_chunk_size") is None else 8192
    chunk = facts.optional("attention_chunk_size") or chunk
    if kinds is not None:
        return tuple(chunk if kind == "chunked_attention" else None for kind in kinds)
    step = facts.quiet("no_rope_layer_interval", 4, least=1)
    rotated = facts.numbers("no_rope_layers") or tuple(int((layer + 1) % step != 0) for layer in range(layers))
    return tuple(chunk if rotates else None for rotates in rotated)


def _llama4_experts(facts: ConfigFacts, layers: int) -> tuple[bool, ...]:
    given = facts.numbers("moe_layers")
    step = facts.quiet("interleave_moe_layer_step", 1, least=1)
    named = range(step - 1, layers, step) if given is None else given
    return tuple(layer in named for layer in range(layers))


_MIXTRAL = Family(
    vocab_size=32000,
    max_context=131072,
    top_k=2,
    inner_key="intermediate_size",
    qkv_bias=False,
    out_bias=False,
    windows=one_window,
)
_QWEN3 = Family(
    vocab_size=151936,
    max_context=32768,
    top_k=8,
    windows=window_if_used,
    qk_norm="head",
    moe=sparse_step(),
    mlp=MLP,
)

SLIDING_FAMILIES: dict[str, AnatomyRule] = {
    "afmoe": Family(
        vocab_size=200192,
        max_context=16384,
        top_k=6,
        head_size="key",
        all_heads_if_missing=True,
        windows=layer_windows(1024, pattern("global_attn_every_n_layers", 4)),
        qk_norm="head",
        out_gate=_wide_gate,
        norms=4,
        moe=after_dense("num_dense_layers", 1),
        mlp=MLP,
        shared=shared_experts("moe_intermediate_size", 2),
        correction="fp32",
        fp32_names=("expert_bias",),
    ),
    "beam": Family(
        vocab_size=151936,
        max_context=8192,
        top_k=8,
        head_size="key",
        windows=layer_windows(512, lambda facts, layer, layers: (layer + 1) % 6 != 0 and layer + 1 != layers),
        qk_norm="head",
        out_gate=_wide_gate,
        out_gate_bias=True,
        norms=4,
        moe=mlp_kinds(lambda facts: 3),
        mlp=MLP,
        router_fp32=True,
        correction="fp32",
        fp32_names=("mlp.gate.weight", "e_score_correction_bias"),
    ),
    "cohere2_moe": Family(
        vocab_size=256000,
        max_context=8192,
        top_k=2,
        head_size="key",
        all_heads_if_missing=True,
        windows=layer_windows(4096, _cohere2_slides),
        norms=1,
        moe=mlp_kinds(quiet_size_of("first_k_dense_replace", 0)),
        mlp=_cohere2_dense_width,
        inner_key="intermediate_size",
        shared=shared_experts("intermediate_size", 0),
    ),
    "dots1": Family(
        vocab_size=152064,
        max_context=2048,
        top_k=6,
        all_heads_if_missing=True,
        windows=layer_windows(4096, lambda facts, layer, layers: layer >= facts.quiet("max_window_layers", 62)),
        qk_norm="head",
        moe=after_dense("first_k_dense_replace", 0),
        mlp=MLP,
        shared=shared_experts("moe_intermediate_size", 0),
        router_fp32=True,
        correction="fp32",
        fp32_names=GATE,
    ),
    "exaone_moe": Family(
        vocab_size=102400,
        max_context=2048,
        top_k=8,
        windows=layer_windows(4096, _exaone_slides),
        qkv_bias=False,
        out_bias=False,
        qk_norm="head",
        moe=mlp_kinds(quiet_size_of("first_k_dense_replace", 1)),
        mlp=MLP,
        shared=shared_experts("moe_intermediate_size", 1),
        router_fp32=True,
        correction="fp32",
        fp32_names=GATE,
    ),
    "flint": Family(
        vocab_size=150144,
        max_context=262144,
        top_k=6,
        head_size="key",
        windows=layer_windows(
            513, lambda facts, layer, layers: not (layer < 2 or layer % 4 == 1 or layer == layers - 1)
        ),
        qk_norm="head",
        sinks="all fp32",
        scores_in_fp32=True,
        moe=sparse_step(dense_by_default=(0, 1)),
        mlp=MLP,
        shared=size_of("shared_expert_intermediate_size", 1024),
        router_fp32=True,
        fp32_names=("gate.weight", "sinks", "softmax_offset"),
    ),
    "gemma4_text": gemma4,
    "gpt_oss": Family(
        vocab_size=201088,
        max_context=131072,
        top_k=4,
        head_size="key",
        windows=layer_windows(128, lambda facts, layer, layers: layer % 2 == 0),
        qkv_bias=("attention_bias", True),
        out_bias=("attention_bias", True),
        sinks="all",
        inner_key="intermediate_size",
        expert_bias=True,
        router_bias=True,
    ),
    "granitemoe_swa": replace(
        GRANITE, windows=layer_windows(128, lambda facts, layer, layers: layer % 4 != 0), sinks="all"
    ),
    "kolibri1": Family(
        vocab_size=128000,
        max_context=262144,
        top_k=6,
        head_size="key",
        windows=layer_windows(513, lambda facts, layer, layers: (layer + 1) % 5 != 0),
        qkv_bias=False,
        out_bias=False,
        qk_norm="head",
        norms=4,
        shared=size_of("shared_expert_intermediate_size", 512),
        correction="fp32",
        fp32_names=("e_score_correction_bias", "router.expert_bias"),
    ),
    "laguna": Family(
        vocab_size=100352,
        max_context=131072,
        top_k=8,
        head_size="key",
        heads_per_layer="num_attention_heads_per_layer",
        windows=layer_windows(512, lambda facts, layer, layers: False),
        qk_norm="head",
        out_gate=_laguna_gate,
        moe=mlp_kinds(lambda facts: 1),
        mlp=MLP,
        shared=size_of("shared_expert_intermediate_size", 512),
        correction="plain",
    ),
    "llama4_text": Family(
        vocab_size=202048,
        max_context=131072,
        top_k=1,
        all_heads_if_missing=True,
        windows=_llama4_windows,
        chunked=True,
        moe=_llama4_experts,
        mlp=required_size("intermediate_size_mlp"),
        inner_key="intermediate_size",
        shared=MLP,
    ),
    "mellum": Family(
        vocab_size=98304,
        max_context=131072,
        top_k=8,
        head_size="key",
        windows=layer_windows(1024, lambda facts, layer, layers: False),
        qk_norm="head",
        moe=mlp_kinds(lambda facts: 0),
        mlp=MLP,
    ),
    "mimo_v2_flash": Family(
        vocab_size=152576,
        max_context=131072,
        top_k=8,
        head_size="key",
        value_key="v_head_dim",
        sliding_kv_factor=2,
        windows=layer_windows(129, lambda facts, layer, layers: layer != 0 and (layer + 1) % 6 != 0),
        out_bias=False,
        sinks="sliding",
        moe=mlp_kinds(lambda facts: 1),
        mlp=MLP,
        router_fp32=True,
        correction="fp32",
        fp32_names=("mlp.gate.weight", "e_score_correction_bias"),
    ),
    "mixtral": _MIXTRAL,
    "muse_spark_text": Family(
        vocab_size=202048,
        max_context=1048576,
        top_k=8,
        head_size="key",
        windows=layer_windows(2048, lambda facts, layer, layers: (layers - 1 - layer) % 4 != 0),
        out_gate=_wide_gate,
        norms=3,
        moe=mlp_kinds(lambda facts: 0),
        mlp=MLP,
        width_keys=("moe_hidden_size",),
        router_fp32=True,
        correction="fp32",
        more=_muse_spark_more,
        fp32_names=(*GATE, "residual_gate.gate"),
    ),
    "phimoe": replace(
        _MIXTRAL,
        vocab_size=32064,
        qkv_bias=("attention_bias", False),
        out_bias=("attention_bias", False),
        norm_bias=True,
        head_bias=("lm_head_bias", False),
    ),
    "qwen2_moe": Family(
        vocab_size=151936,
        max_context=32768,
        top_k=4,
        windows=layer_windows(4096, _qwen2_slides),
        qkv_bias=("qkv_bias", True),
        out_bias=False,
        moe=sparse_step(),
        mlp=MLP,
        shared=size_of("shared_expert_intermediate_size", 5632),
        shared_gate=True,
    ),
    "qwen3_moe": _QWEN3,
    "qwen3_omni_moe_text": replace(_QWEN3, vocab_size=3584, windows=one_window),
}
