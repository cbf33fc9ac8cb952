"""Tiny random checkpoints of any family that transformers routes through its experts interface."""

import inspect
from pathlib import Path
from typing import Any

import torch
import transformers

from engine.contract.checkpoint import read_shape
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
    "top_k_experts": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "moe_num_shared_experts": 1,
    "norm_topk_prob": True,
    "n_group": 2,
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
}
_LAYER_TYPES = {"gemma4_text": ["sliding_attention", "full_attention"] * 2}


def tiny_family(model_type: str, folder: Path) -> TinyModel:
    """Build and save a tiny model of a family; its shape is read back as the program reads it."""
    default = transformers.AutoConfig.for_model(model_type)
    config_class = type(default)
    known = {*default.to_dict(), *inspect.signature(config_class.__init__).parameters, *config_class.attribute_map}
    sizes = {name: value for name, value in _SIZES.items() if name in known}
    if model_type in _LAYER_TYPES:
        sizes["layer_types"] = _LAYER_TYPES[model_type]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config_class(**sizes), dtype=torch.float32)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2 if parameter.dim() > 1 else 0.5)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return TinyModel(folder, read_shape(folder))
