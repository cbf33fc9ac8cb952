"""Configurations by which the family rules are compared with transformers' modules: keys and values of all heads."""

from typing import Any

SMALL_GEMMA = {
    "hidden_size": 128,
    "enable_moe_block": True,
    "num_experts": 16,
    "top_k_experts": 4,
    "moe_intermediate_size": 32,
    "hidden_size_per_layer_input": 0,
}

# model type -> variants; each is what differs from the class defaults, beside the number of layers
CASES: dict[str, list[dict[str, Any]]] = {
    "afmoe": [{}, {"attention_bias": True, "num_dense_layers": 3, "num_key_value_heads": 4}],
    "aria_text": [{"num_key_value_heads": 8}, {"mlp_bias": True, "attention_bias": True, "head_dim": 64}],
    "beam": [{}, {"attention_bias": True, "mlp_layer_types": ["sparse", "dense"] * 4}],
    "cohere2_moe": [
        {},
        {"first_k_dense_replace": 2, "prefix_dense_intermediate_size": 1000, "num_shared_experts": 2},
        {"tie_word_embeddings": False, "attention_bias": True, "num_key_value_heads": 8, "rms_norm_eps": 1e-5},
    ],
    "dots1": [
        {"n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 2, "max_window_layers": 3},
        {"n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 1, "first_k_dense_replace": 2,
         "attention_bias": True},
    ],
    "ernie4_5_moe": [{}, {"use_bias": True, "moe_layer_interval": 2, "tie_word_embeddings": False,
                          "moe_num_shared_experts": 0}, {"moe_layer_end_index": 5}],
    "exaone_moe": [{}, {"first_k_dense_replace": 3, "num_key_value_heads": 8, "sliding_window_pattern": 2}],
    "flex_olmo": [{}, {"num_key_value_heads": 8, "attention_bias": True}],
    "flint": [{}, {"mlp_only_layers": [], "attention_bias": True, "decoder_sparse_step": 2}],
    "gemma4_text": [
        SMALL_GEMMA,
        {**SMALL_GEMMA, "attention_k_eq_v": True, "num_global_key_value_heads": 2, "attention_bias": True},
        {**SMALL_GEMMA, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 500,
         "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    ],
    "glm4_moe": [
        {"head_dim": 128},
        {"head_dim": 128, "attention_bias": True, "use_qk_norm": True, "first_k_dense_replace": 3,
         "tie_word_embeddings": True},
    ],
    "gpt_oss": [{}, {"attention_bias": False, "layer_types": ["full_attention"] * 8}],
    "granitemoe": [{}, {"num_key_value_heads": 8, "attention_bias": True, "tie_word_embeddings": True}],
    "granitemoe_swa": [{}, {"shared_intermediate_size": 512, "num_key_value_heads": 8}],
    "granitemoeshared": [{}, {"shared_intermediate_size": 512}],
    "hunyuan_v1_moe": [{"head_dim": 128, "num_experts": 16, "moe_topk": 4},
                       {"head_dim": 64, "num_experts": 16, "moe_topk": [4, 8] * 4, "num_key_value_heads": 8}],
    "hy_v3": [{}, {"mlp_bias": True, "attention_bias": True, "num_shared_experts": 2}],
    "kolibri1": [{}, {"sliding_window": 64}],
    "laguna": [
        {},
        {"gating": "per-element", "num_attention_heads_per_layer": [48, 64] * 4,
         "layer_types": ["full_attention", "sliding_attention"] * 4},
    ],
    "mellum": [
        {},
        {"layer_types": ["sliding_attention", "full_attention"] * 4, "mlp_layer_types": ["dense"] + ["sparse"] * 7},
    ],
    "mimo_v2_flash": [{}, {"attention_bias": True, "sliding_window": 33}],
    "minimax_m2": [{}, {"head_dim": 64}],
    "mixtral": [{}, {"sliding_window": 4096, "head_dim": 64, "tie_word_embeddings": True}],
    "olmoe": [{}, {"num_key_value_heads": 4, "attention_bias": True}],
    "phimoe": [{}, {"attention_bias": True, "lm_head_bias": True, "sliding_window": 2047}],
    "qwen2_moe": [{}, {"qkv_bias": False, "decoder_sparse_step": 2},
                  {"use_sliding_window": True, "max_window_layers": 4, "mlp_only_layers": [0, 5]}],
    "qwen3_moe": [{"head_dim": 128}, {"head_dim": 128, "mlp_only_layers": [0, 1], "attention_bias": True},
                  {"head_dim": 96, "decoder_sparse_step": 2, "use_sliding_window": True}],
    "sarvam_moe": [{}, {"use_qk_norm": False, "attention_bias": True}],
    "solar_open": [{}, {"attention_bias": True, "n_shared_experts": 2}],
}  # fmt: skip
