"""Configurations by which the family rules are compared with transformers' modules: text parts inside a wrapper."""

from typing import Any

from tests.support.family_cases import SMALL_GEMMA
from tests.support.family_cases_other import INDEX_SIZES, LATENT_SIZES

# wrapper type -> variants of (what differs in the text part, what differs around it)
NESTED: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "aria": [({"head_dim": 128}, {})],
    "deepseek_ocr2": [({"mlp_layer_types": ["dense"] + ["sparse"] * 7, "num_experts_per_tok": 6}, {})],
    "dots3_note": [
        ({}, {}),
        ({**LATENT_SIZES, **INDEX_SIZES, "layer_types": ["full_attention", "sliding_attention"] * 4,
          "attention_bias": True, "sliding_window": 64, "swa_kv_lora_rank": 80, "swa_num_attention_heads": 16,
          "swa_num_key_value_heads": 16, "swa_v_head_dim": 96, "n_shared_experts": 2,
          "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6}, {}),
        ({"use_dsa": False, "first_k_dense_replace": 3, "moe_layer_freq": [1] * 6 + [0, 1]}, {}),
    ],
    "ernie4_5_vl_moe": [
        ({}, {}),
        ({"use_bias": True, "moe_intermediate_size": [300, 200], "mlp_layer_types": ["dense", "sparse"] * 4,
          "moe_num_experts": 12}, {"tie_word_embeddings": False}),
    ],
    "gemma4": [
        (SMALL_GEMMA, {"vision_config": None, "audio_config": None}),
        (SMALL_GEMMA, {"vision_config": None, "audio_config": None, "tie_word_embeddings": False}),
    ],
    "glm4v_moe": [({"head_dim": 128}, {}), ({"head_dim": 128, "attention_bias": False}, {"tie_word_embeddings": True})],
    "kimi_k25": [
        ({"model_type": "deepseek_v3", "num_key_value_heads": 128}, {}),
        ({"model_type": "deepseek_v3", "first_k_dense_replace": 1}, {"tie_word_embeddings": False}),
    ],
    "llama4": [({}, {}), ({"interleave_moe_layer_step": 2}, {})],
    "glm5_next": [
        ({}, {}),
        ({**LATENT_SIZES, **INDEX_SIZES, "qk_rope_head_dim": 0, "layer_types": ["linear_attention", "full_attention",
          "full_attention", "linear_attention"] * 2, "indexer_types": ["full", "full", "shared", "full"] * 2,
          "hc_mult": 2,
          "linear_attn_config": {"num_heads": 8, "head_dim": 48, "short_conv_kernel_size": 3}, "attention_bias": True,
          "index_kpool": 8, "mlp_layer_types": ["sparse", "dense"] * 4}, {"tie_word_embeddings": True}),
    ],
    "hy_v4_vl": [
        ({}, {}),
        ({**LATENT_SIZES, **INDEX_SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
          "mrope_section": [6, 5, 5]}, "attention_bias": True}, {"tie_word_embeddings": True}),
    ],
    "minimax_m3_vl": [({"layer_types": ["full_attention", "minimax_m3_sparse"] * 4}, {})],
    "mistral3": [
        ({"model_type": "mistral4"}, {}),
        ({"model_type": "mistral4", **LATENT_SIZES, "attention_bias": True, "first_k_dense_replace": 2}, {}),
    ],
    "mistral_large4": [
        ({}, {}),
        ({**LATENT_SIZES, **INDEX_SIZES, "no_rope_layers": [1, 0] * 4, "kv_source_layers": [0, 1, 0, 1, 4, 5, 4, 5],
          "indexer_types": ["full"] * 3 + ["shared"] * 5, "attention_bias": True,
          "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6}, {"tie_word_embeddings": True}),
    ],
    "muse_spark": [({}, {}), ({"mlp_layer_types": ["dense"] + ["sparse"] * 7}, {})],
    "qwen3_5_moe": [({}, {}), ({"full_attention_interval": 2}, {"tie_word_embeddings": True})],
    "qwen3_omni_moe_thinker": [({"num_attention_heads": 32, "head_dim": 128, "vocab_size": 5000}, {})],
    "step3p7": [
        ({"model_type": "step3p5", "sliding_window": 512}, {}),
        ({"model_type": "step3p5", "layer_types": ["full_attention", "sliding_attention"] * 4, "sliding_window": 64,
          "num_sliding_attention_heads": 96, "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6, "mlp_bias": True,
          "attention_bias": True}, {}),
    ],
    "qwen3_vl_moe": [({"head_dim": 128}, {}), ({"num_key_value_heads": 4}, {"tie_word_embeddings": True})],
}  # fmt: skip

# text parts of wrappers whose attention keeps keys and values of all heads in every layer
NESTED_TEXTS = {
    "aria_text", "deepseek_ocr2_text", "ernie4_5_vl_moe_text", "gemma4_text", "glm4v_moe_text", "muse_spark_text",
    "qwen3_omni_moe_text", "qwen3_vl_moe_text",
}  # fmt: skip

# what a text part needs beside its class defaults to be complete
TO_BE_COMPLETE: dict[str, dict[str, Any]] = {
    "deepseek_ocr2_text": {"mlp_layer_types": ["sparse"] * 32, "num_experts_per_tok": 6},
    "glm4v_moe_text": {"head_dim": 128},
    "qwen3_omni_moe_text": {"head_dim": 128},
    "step3p5": {"sliding_window": 512},
}

# their masks or their attention look at values, which tokens do not have on the meta device
LOOK_AT_VALUES = ("gemma4", "glm5_next", "jetmoe", "qwen4_exp_text")

# qwen3_omni_moe is not built whole: it speaks, too. Its thinker is built above and holds the whole text part.
