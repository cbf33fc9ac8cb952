"""Tiny random checkpoints of any family that the engine runs, on disk, wrapped in a multimodal model where usual."""

import inspect
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING

from engine.contract.checkpoint import read_shape
from engine.model.dense import model_class
from tests.support.tiny_models import VOCAB, TinyModel, tiny_tokenizer

# Sizes under all the names that configurations use for them; a family takes those it knows.
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 8,
    "max_position_embeddings": 512,
    "model_max_length": 512,
    "sliding_window": 8,
    "rope_theta": 10000.0,
    "rotary_dim": 8,
    "partial_rotary_factor": 1.0,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "expert_intermediate_size": 16,
    "expert_ffn_size": 16,
    "shared_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_experts": 8,
    "num_local_experts": 8,
    "n_routed_experts": 8,
    "moe_num_experts": 8,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "top_k_experts": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "moe_num_shared_experts": 1,
    "norm_topk_prob": True,
    "n_group": 2,
    "num_expert_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "decoder_sparse_step": 1,
    "moe_layer_start_index": 1,
    "moe_layer_end_index": 3,
    "enable_moe_block": True,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    # latent attention and its index
    "kv_lora_rank": 12,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 6,
    "v_head_dim": 10,
    "index_topk": 256,
    "index_n_heads": 16,
    "index_head_dim": 12,
    # linear attention, Mamba, convolutions
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 4,
    "linear_num_heads": 3,
    "linear_head_dim": 6,
    "mamba_n_heads": 4,
    "mamba_d_state": 6,
    "mamba_d_conv": 4,
    "mamba_n_groups": 2,
    "mamba_chunk_size": 8,
    "block_size": 4,
    "full_attention_interval": 2,
    "layer_group_size": 2,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "num_dense_layers": 1,
}
_MIXED = ["linear_attention", "full_attention"] * 2
_OWN: dict[str, dict[str, Any]] = {
    "axk1": {"num_key_value_heads": 4},
    "bailing_hybrid": {"num_key_value_heads": 4},
    "deepseek_v2": {"num_key_value_heads": 4},
    "deepseek_v3": {"num_key_value_heads": 4},
    "deepseek_v32": {"num_key_value_heads": 4},
    "gemma4_text": {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "glm4_moe_lite": {"num_key_value_heads": 4},
    "glm_moe_dsa": {"num_key_value_heads": 4, "indexer_types": ["full", "full", "shared", "full"]},
    "granitemoehybrid": {"layer_types": _MIXED},
    "kimi_linear": {"num_key_value_heads": 4, "layer_types": _MIXED},
    "lara_mini": {"layer_types": ["linear_attention", "sliding_attention", "linear_attention", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "minimax": {"layer_types": _MIXED},
    "mistral4": {"num_key_value_heads": 4},
    "sarvam_mla": {"num_key_value_heads": 4},
}
_KEPT_AS_BUILT = ("A_log", "dt_bias")  # decay: random values would let states explode
_GENTLE = 0.05  # spread of the weights of recurrent layers, whose rounding errors would grow
_VISION: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "depth": 1,
                           "num_heads": 2, "num_attention_heads": 2, "out_hidden_size": 32, "patch_size": 4,
                           "image_size": 8, "num_position_embeddings": 4}  # fmt: skip


def tiny_config(model_type: str, **more: Any) -> Any:
    """The configuration of a tiny model of a type."""
    config_class = CONFIG_MAPPING[model_type]
    known = {*config_class().to_dict(), *inspect.signature(config_class.__init__).parameters}
    known |= set(config_class.attribute_map)
    own = _OWN.get(model_type, {}) | more
    return config_class(**{name: value for name, value in (_SIZES | own).items() if name in known or name in own})


def tiny_family(model_type: str, folder: Path, dtype: torch.dtype = torch.float32, **more: Any) -> TinyModel:
    """Build and save a tiny model of a family; its shape is read back as the program reads it."""
    return save_tiny(tiny_config(model_type, **more), folder, dtype)


def save_tiny(config: Any, folder: Path, dtype: torch.dtype = torch.float32) -> TinyModel:
    """Build and save the model of a configuration with lively random weights."""
    torch.manual_seed(1)
    model = model_class(config)._from_config(config, dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith(_KEPT_AS_BUILT):
                parameter.normal_(0, (_GENTLE if "linear" in name else 0.2) if parameter.dim() > 1 else 0.5)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return TinyModel(folder, read_shape(folder))
