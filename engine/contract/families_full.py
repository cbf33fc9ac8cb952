"""Families whose layers all have full attention.

tests/engine/contract/test_families.py compares every line of this table with the modules that transformers builds.
"""

from dataclasses import replace

from engine.contract.families_anatomy import AnatomyRule, Family
from engine.contract.families_rules import (
    after_dense,
    every_layer,
    interval,
    mlp_kinds,
    no_size,
    quiet_size_of,
    required_size,
    shared_experts,
    sparse_step,
)

GATE = ("gate.weight", "e_score_correction_bias")
MLP = required_size("intermediate_size")

_GLM4 = Family(
    vocab_size=151552,
    max_context=131072,
    top_k=8,
    out_bias=False,
    qk_norm="head",
    qk_norm_flag=("use_qk_norm", False),
    moe=after_dense("first_k_dense_replace", 1),
    mlp=MLP,
    shared=shared_experts("moe_intermediate_size", 1),
    router_fp32=True,
    correction="fp32",
    fp32_names=GATE,
)
GRANITE = Family(
    vocab_size=32000,
    max_context=2048,
    top_k=2,
    all_heads_if_missing=True,
    inner_key="intermediate_size",
    shared=quiet_size_of("shared_intermediate_size", 0),
)

FULL_FAMILIES: dict[str, AnatomyRule] = {
    "aria_text": Family(
        vocab_size=32000,
        max_context=2048,
        top_k=2,
        all_heads_if_missing=True,
        inner_key="intermediate_size",
        mlp_bias=("mlp_bias", False),
        shared=shared_experts("intermediate_size", 2),
    ),
    "deepseek_ocr2_text": Family(
        vocab_size=102400,
        max_context=2048,
        top_k=6,
        head_size="quotient",
        all_heads_if_missing=True,
        moe=mlp_kinds(lambda facts: facts.required("mlp_layer_types")),
        mlp=MLP,
        mlp_bias=("mlp_bias", False),
        shared=shared_experts("moe_intermediate_size", 2),
        router_fp32=True,
        fp32_names=("mlp.gate.weight",),
    ),
    "ernie4_5_moe": Family(
        vocab_size=103424,
        max_context=131072,
        top_k=6,
        qkv_bias=("use_bias", False),
        out_bias=("use_bias", False),
        moe=interval,
        mlp=MLP,
        mlp_bias=("use_bias", False),
        shared=shared_experts("moe_intermediate_size", 2),
        router_fp32=True,
        correction="fp32",
        head_bias=("use_bias", False),
        fp32_names=GATE,
    ),
    "flex_olmo": Family(
        vocab_size=100352,
        max_context=4096,
        top_k=5,
        all_heads_if_missing=True,
        qk_norm="width",
        inner_key="intermediate_size",
    ),
    "glm4_moe": _GLM4,
    "glm4v_moe_text": replace(
        _GLM4, vocab_size=151424, max_context=65536, qkv_bias=("attention_bias", True), qk_norm="none"
    ),
    "granitemoe": replace(GRANITE, shared=no_size),
    "granitemoeshared": GRANITE,
    "hunyuan_v1_moe": Family(
        vocab_size=290943,
        max_context=2048,
        top_k=1,
        head_size="key",
        all_heads_if_missing=True,
        qk_norm="head",
        inner_key="intermediate_size",
        shared=MLP,
        router_fp32=True,
        fp32_names=("gate.wg.weight",),
    ),
    "hy_v3": Family(
        vocab_size=120832,
        max_context=131072,
        top_k=8,
        head_size="key",
        qk_norm="head",
        moe=mlp_kinds(lambda facts: 1),
        mlp=MLP,
        mlp_bias=("mlp_bias", False),
        shared=shared_experts("moe_intermediate_size", 1),
        router_fp32=True,
        correction="fp32",
        fp32_names=(*GATE, "mlp.expert_bias"),
    ),
    "minimax_m2": Family(
        vocab_size=200064,
        max_context=196608,
        top_k=8,
        head_size="key",
        qkv_bias=False,
        out_bias=False,
        qk_norm="width",
        inner_key="intermediate_size",
        correction="plain",
    ),
    "olmoe": Family(
        vocab_size=50304,
        max_context=4096,
        top_k=8,
        all_heads_if_missing=True,
        qk_norm="width",
        inner_key="intermediate_size",
    ),
    "qwen3_vl_moe_text": Family(
        vocab_size=151936,
        max_context=128000,
        top_k=4,
        qk_norm="head",
        moe=sparse_step(),
        mlp=MLP,
    ),
    "sarvam_moe": replace(
        _GLM4,
        vocab_size=262144,
        top_k=6,
        head_size="key",
        qk_norm_flag=("use_qk_norm", True),
        fp32_names=(*GATE, "expert_bias"),
    ),
    "solar_open": replace(
        _GLM4,
        vocab_size=196608,
        head_size="key",
        qk_norm="none",
        moe=every_layer,
    ),
}
