"""config.json of well-known models, as far as memory is concerned, and folders made of them."""

import json
from pathlib import Path
from typing import Any

from engine.contract.checkpoint import read_shape
from engine.contract.shape import ModelShape

Config = dict[str, Any]

QWEN3_30B: Config = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "max_position_embeddings": 40960,
}  # fmt: skip
QWEN3_235B: Config = QWEN3_30B | {
    "num_hidden_layers": 94, "hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
}  # fmt: skip
QWEN35_35B: Config = {
    "model_type": "qwen3_5_moe",
    "vision_config": {"depth": 27, "hidden_size": 1152},
    "text_config": {
        "model_type": "qwen3_5_moe_text", "num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
        "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    },
}  # fmt: skip
QWEN3_NEXT_80B: Config = {
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5632, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10,
    "full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "vocab_size": 151936,
    "max_position_embeddings": 262144, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT_OSS_120B: Config = {
    "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 128,
    "num_experts_per_tok": 4, "sliding_window": 128, "vocab_size": 201088, "max_position_embeddings": 131072,
    "attention_bias": True, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
}  # fmt: skip
GPT_OSS_20B: Config = GPT_OSS_120B | {
    "num_hidden_layers": 24, "num_local_experts": 32, "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
DEEPSEEK_V3: Config = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "q_lora_rank": 1536, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "intermediate_size": 18432, "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1, "vocab_size": 129280, "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}  # fmt: skip
GLM_45: Config = {
    "model_type": "glm4_moe", "num_hidden_layers": 92, "hidden_size": 5120, "num_attention_heads": 96,
    "num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 160, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "intermediate_size": 12288, "first_k_dense_replace": 3,
    "attention_bias": True, "use_qk_norm": True, "vocab_size": 151552, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}  # fmt: skip
OLMOE: Config = {
    "model_type": "olmoe", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": None, "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8,
    "vocab_size": 50304, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip
MINIMAX_M25: Config = {
    "model_type": "minimax_m2", "num_hidden_layers": 62, "hidden_size": 3072, "num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 1536, "num_local_experts": 256,
    "num_experts_per_tok": 8, "vocab_size": 200064, "max_position_embeddings": 196608, "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
}  # fmt: skip
GEMMA4_26B: Config = {
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text", "num_hidden_layers": 30, "hidden_size": 2816, "intermediate_size": 2112,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
        "num_global_key_value_heads": 2, "attention_k_eq_v": True, "sliding_window": 1024, "enable_moe_block": True,
        "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704, "hidden_size_per_layer_input": 0,
        "vocab_size": 262144, "max_position_embeddings": 262144, "dtype": "bfloat16",
    },
    "vision_config": {"model_type": "gemma4_vision"},
}  # fmt: skip
MIXTRAL_8X7B: Config = {
    "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": None, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN15_MOE: Config = {
    "model_type": "qwen2_moe", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936,
    "max_position_embeddings": 8192, "use_sliding_window": False, "torch_dtype": "bfloat16",
}  # fmt: skip
PHI35_MOE: Config = {
    "model_type": "phimoe", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 6400, "num_local_experts": 16, "num_experts_per_tok": 2,
    "vocab_size": 32064, "max_position_embeddings": 131072, "attention_bias": True, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA4_SCOUT: Config = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192, "vocab_size": 202048, "max_position_embeddings": 10485760,
        "torch_dtype": "bfloat16",
    },
    "vision_config": {"model_type": "llama4_vision_model", "num_hidden_layers": 34},
}  # fmt: skip
ERNIE_21B: Config = {
    "model_type": "ernie4_5_moe", "num_hidden_layers": 28, "hidden_size": 2560, "num_attention_heads": 20,
    "num_key_value_heads": 4, "intermediate_size": 12288, "moe_intermediate_size": 1536, "moe_num_experts": 64,
    "moe_k": 6, "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "vocab_size": 103424,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip

DBRX: Config = {
    "model_type": "dbrx", "n_layers": 40, "d_model": 6144, "n_heads": 48, "vocab_size": 100352, "max_seq_len": 32768,
    "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}, "torch_dtype": "bfloat16",
}  # fmt: skip
LONGCAT_FLASH: Config = {
    "model_type": "longcat_flash", "num_layers": 28, "hidden_size": 6144, "num_attention_heads": 64,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
    "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256,
    "moe_topk": 12, "vocab_size": 131072, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip


def folder_with(config: Config, folder: Path) -> Path:
    """A model folder that holds nothing but config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def shape_of(config: Config, folder: Path) -> ModelShape:
    """What is read of such a folder."""
    return read_shape(folder_with(config, folder))
