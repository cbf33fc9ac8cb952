"""Configurations by which the family rules are compared with transformers' modules: those of other attention.

They do not keep keys and values of every head in every layer.
"""

from typing import Any

LATENT_SIZES = {"kv_lora_rank": 96, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 80}
INDEX_SIZES = {"index_n_heads": 4, "index_head_dim": 64}
_HALF_LINEAR = ["linear_attention", "full_attention"] * 4

# the same for families that do not keep keys and values of every head in every layer
OTHER_CASES: dict[str, list[dict[str, Any]]] = {
    "axk1": [{}, {**LATENT_SIZES, "attention_bias": True, "n_shared_experts": 2}],
    "axk2": [{}, {**LATENT_SIZES, **INDEX_SIZES, "gated_norm_rank": 8, "attention_bias": True}],
    "bailing_hybrid": [
        {"head_dim": 64},
        {**LATENT_SIZES, "head_dim": 32, "q_lora_rank": 48, "layer_group_size": 3, "attention_bias": True},
    ],
    "dbrx": [
        {"attn_config": {"kv_n_heads": 4, "clip_qkv": 8, "rope_theta": 1e4}},
        {"d_model": 1024, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 5e5},
         "ffn_config": {"ffn_hidden_size": 300, "moe_num_experts": 16, "moe_top_k": 4}},
    ],
    "deepseek_v2": [
        {"num_experts_per_tok": 6, "num_key_value_heads": 32},
        {**LATENT_SIZES, "num_experts_per_tok": 6, "q_lora_rank": None, "mlp_bias": True, "attention_bias": True,
         "first_k_dense_replace": 1},
    ],
    "deepseek_v3": [{}, {**LATENT_SIZES, "q_lora_rank": None, "attention_bias": True, "first_k_dense_replace": 1}],
    "deepseek_v32": [{}, {**LATENT_SIZES, **INDEX_SIZES, "attention_bias": True}],
    "deepseek_v4": [
        {},
        {"layer_types": ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention",
                         "sliding_attention"] * 2, "compress_rates": {"compressed_sparse_attention": 3,
         "heavily_compressed_attention": 16}, "mlp_bias": True, "tie_word_embeddings": True, "hc_mult": 2,
         "mlp_layer_types": ["moe"] * 4 + ["hash_moe"] * 4, "sliding_window": 64, "head_dim": 128, **INDEX_SIZES},
    ],
    "glm4_moe_lite": [{}, {**LATENT_SIZES, "attention_bias": True, "mlp_layer_types": ["sparse", "dense"] * 4}],
    "glm_moe_dsa": [{}, {**LATENT_SIZES, **INDEX_SIZES, "indexer_types": ["full", "full", "shared", "shared"] * 2}],
    "inkling_text": [
        {},
        {"local_layer_ids": [0, 3], "swa_num_attention_heads": 32, "swa_num_key_value_heads": 4, "swa_head_dim": 64,
         "sliding_window_size": 64, "d_rel": 8, "conv_kernel_size": 3, "mlp_layer_types": ["dense", "sparse"] * 4,
         "n_shared_experts": 1},
        {"dense_intermediate_size": 1000, "intermediate_size": 500, "dense_mlp_idx": 2},
    ],
    "inkling2_text": [{}, {"swa_num_attention_heads": 32, "swa_num_key_value_heads": 4, "swa_head_dim": 64, "d_rel": 8,
                           "unpadded_vocab_size": 200000, "conv_kernel_size": 3, "n_layers_per_attn_res_block": 3}],
    "inkling2_loop_text": [
        {"n_layers_per_attn_res_block": 2, "loop_layer_index_start": 2, "loop_layer_index_end": 6},
        {"n_layers_per_attn_res_block": 1, "loop_config": {"core_start": 3, "core_end": 7, "num_passes": 4,
         "gate_rank": 16}, "num_key_value_heads": 4, "rel_extent": 512},
    ],
    "hy_v4": [
        {},
        {**LATENT_SIZES, **INDEX_SIZES, "indexer_types": ["full", "shared"] * 4, "attention_bias": True, "hc_mult": 2,
         "tie_word_embeddings": True, "mlp_layer_types": ["sparse", "dense"] * 4, "n_shared_experts": 2},
    ],
    "granitemoehybrid": [
        {"layer_types": _HALF_LINEAR},
        {"layer_types": ["mamba"] * 6 + ["attention"] * 2, "num_key_value_heads": 8, "mamba_d_state": 64,
         "mamba_n_heads": 64, "mamba_n_groups": 2, "mamba_proj_bias": True, "mamba_conv_bias": False,
         "shared_intermediate_size": 512, "attention_bias": True},
    ],
    "jamba": [{}, {"attn_layer_period": 4, "attn_layer_offset": 1, "expert_layer_period": 3, "mamba_proj_bias": True,
                   "mamba_conv_bias": False, "mamba_dt_rank": 50, "mamba_d_state": 24}],
    "jetmoe": [{}, {"kv_channels": 64, "num_key_value_heads": 8, "num_local_experts": 6, "num_experts_per_tok": 3,
                    "tie_word_embeddings": False}],
    "kimi_linear": [
        {},
        {**LATENT_SIZES, "layer_types": _HALF_LINEAR, "linear_num_heads": 8, "linear_head_dim": 48,
         "q_lora_rank": 40, "linear_conv_kernel_dim": 3},
    ],
    "lara_mini": [{}, {"layer_types": _HALF_LINEAR, "linear_num_key_heads": 4, "linear_value_head_dim": 96,
                       "attention_bias": True, "tie_word_embeddings": False}],
    "lfm2_moe": [
        {"layer_types": ["conv", "full_attention"] * 4},
        {"layer_types": ["conv", "conv", "conv", "full_attention"] * 2, "conv_bias": True, "conv_L_cache": 4,
         "use_expert_bias": False, "num_dense_layers": 0, "tie_word_embeddings": False},
    ],
    "llama4_text": [
        {},
        {"interleave_moe_layer_step": 2, "attention_bias": True, "no_rope_layer_interval": 2, "use_qk_norm": False},
        {"attention_chunk_size": None, "moe_layers": [1, 5]},
    ],
    "longcat_flash": [
        {},
        {**LATENT_SIZES, "head_dim": 32, "zero_expert_num": 0, "attention_bias": True, "router_bias": True},
    ],
    "minimax_m3_vl_text": [
        {"layer_types": ["minimax_m3_sparse"] * 8},
        {"sparse_attention_config": {"sparse_num_index_heads": 2, "sparse_index_dim": 64, "sparse_attention_freq":
         [0, 1, 1, 0] * 2}, "moe_layer_freq": [0, 0, 1, 1] * 2, "num_key_value_heads": 8, "tie_word_embeddings": True},
    ],
    "minimax": [{}, {"layer_types": ["linear_attention"] * 7 + ["full_attention"], "head_dim": 96, "block_size": 128}],
    "nemotron_h": [
        {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"] * 2},
        {"layers_block_type": ["mamba", "moe", "attention", "moe"] * 2, "moe_latent_size": 96, "mlp_bias": True,
         "use_bias": True, "use_conv_bias": False, "mamba_n_groups": 4, "ssm_state_size": 32, "mamba_num_heads": 16},
    ],
    "qwen3_5_moe_text": [{}, {"layer_types": _HALF_LINEAR, "linear_num_value_heads": 48, "attention_bias": True}],
    "qwen3_next": [{}, {"mlp_only_layers": [0, 3], "linear_key_head_dim": 64, "linear_conv_kernel_dim": 3,
                        "attention_bias": True, "decoder_sparse_step": 2}],
    "qwen4_exp_text": [
        {"indexer_n_heads": 8, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 1024,
         "indexer_compress_ratio": 16, "eos_token_id": 1},
        {"layer_types": _HALF_LINEAR, "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256,
         "indexer_budget": 64, "indexer_compress_ratio": 4, "ple_layer_ids": [3, 1], "ple_embed_dim": 516,
         "ngram_size": 4, "heads_per_ngram": 2, "ngram_vocab_size_base": 1000, "split_ngram_parts": 8,
         "eos_token_id": 1, "hc_count": 2, "attention_bias": True, "tie_word_embeddings": True},
    ],
    "sarvam_mla": [{}, {**LATENT_SIZES, "q_lora_rank": 64, "num_shared_experts": 2}],
    "zaya": [
        {},
        {"layer_types": ["hybrid", "hybrid_sliding"] * 4, "sliding_window": 64, "cca_time0": 3, "attention_bias": True,
         "lm_head_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 4},
    ],
}  # fmt: skip
