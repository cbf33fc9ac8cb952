"""Tiny random checkpoints of any family that the engine runs, on disk, wrapped in a multimodal model where usual."""

import inspect
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText

from engine.contract.checkpoint import read_shape
from engine.contract.families_table import FAMILIES
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
    "expert_ffn_hidden_size": 16,
    "ffn_hidden_size": 48,
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
_INKLING: dict[str, Any] = {
    "swa_num_attention_heads": 6, "swa_num_key_value_heads": 3, "swa_head_dim": 6, "sliding_window_size": 8, "d_rel": 3,
    "rel_extent": 16, "conv_kernel_size": 3, "unpadded_vocab_size": VOCAB - 8, "log_scaling_n_floor": 9,
    "logits_mup_width_multiplier": 1.0,
}  # fmt: skip
_OWN: dict[str, dict[str, Any]] = {
    "axk1": {"num_key_value_heads": 4},
    "axk2": {"num_key_value_heads": 4, "gated_norm_rank": 6},
    "bailing_hybrid": {"num_key_value_heads": 4},
    "deepseek_v2": {"num_key_value_heads": 4},
    "deepseek_v3": {"num_key_value_heads": 4},
    "deepseek_v32": {"num_key_value_heads": 4},
    "deepseek_v4": {"num_key_value_heads": 1, "partial_rotary_factor": 0.5, "o_groups": 2, "o_lora_rank": 6,
                    "hc_mult": 3,
                    "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                                    "compressed_sparse_attention"],
                    "compress_rates": {"compressed_sparse_attention": 3, "heavily_compressed_attention": 5},
                    "mlp_layer_types": ["hash_moe", "hash_moe", "moe", "moe"]},
    "dbrx": {"d_model": 32, "n_heads": 4, "n_layers": 3, "max_seq_len": 512,
             "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
             "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 8, "moe_top_k": 2, "hidden_size": 32}},
    "dots3_note_text": {"num_key_value_heads": 4, "head_dim": 14, "shared_experts_intermediate_size": 20,
                        "layer_types": [f"{kind}_attention" for kind in ("indexed", "sliding", "full", "sliding")],
                        "use_dsa": None, "swa_num_attention_heads": 2, "swa_num_key_value_heads": 2,
                        "swa_q_lora_rank": 14, "swa_kv_lora_rank": 18, "swa_head_dim": 20, "swa_qk_nope_head_dim": 8,
                        "swa_v_head_dim": 6, "n_group": 2},
    "ernie4_5_vl_moe_text": {"moe_intermediate_size": [16, 12], "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
    "gemma4_text": {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "glm4_moe_lite": {"num_key_value_heads": 4},
    "glm_moe_dsa": {"num_key_value_heads": 4, "indexer_types": ["full", "full", "shared", "full"]},
    "granitemoehybrid": {"layer_types": _MIXED},
    "inkling_text": {**_INKLING, "layer_types": ["hybrid_sliding", "hybrid"] * 2, "mlp_layer_types":
                     ["dense", "sparse", "sparse", "sparse"]},
    "inkling2_text": {**_INKLING, "layer_types": ["hybrid_sliding", "hybrid"] * 2, "n_layers_per_attn_res_block": 2},
    "inkling2_loop_text": {**_INKLING, "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid", "hybrid"],
                           "n_layers_per_attn_res_block": 1, "loop_layer_index_start": 1, "loop_layer_index_end": 3,
                           "loop_num_passes": 2, "loop_gate_rank": 6},
    "jetmoe": {"kv_channels": 8, "head_dim": 8, "intermediate_size": 16},
    "kimi_linear": {"num_key_value_heads": 4, "layer_types": _MIXED},
    "lara_mini": {"layer_types": ["linear_attention", "sliding_attention", "linear_attention", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "longcat_flash": {"num_layers": 3, "num_key_value_heads": 4, "zero_expert_num": 4, "moe_topk": 4,
                      "num_experts_per_tok": 4},
    "minimax": {"layer_types": _MIXED},
    "llama4_text": {"attention_chunk_size": 8, "interleave_moe_layer_step": 2, "num_experts_per_tok": 2},
    "mistral_large4_text": {"num_key_value_heads": 4, "num_hidden_layers": 6, "no_rope_layers": [1, 0, 1, 0, 1, 1],
                            "kv_source_layers": [0, 1, 0, 1, 4, 4], "n_group": 1,
                            "indexer_types": ["full"] * 3 + ["shared"] * 3},
    "mistral4": {"num_key_value_heads": 4, "head_dim": 14, "partial_rotary_factor": 8 / 14},
    "glm4v_moe_text": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2],
                                           "partial_rotary_factor": 1.0}},
    "qwen3_vl_moe_text": {"sliding_window": None},
    "nemotron_h": {"layers_block_type": ["linear_attention", "moe", "full_attention", "moe", "mlp"],
                   "ssm_state_size": 6, "n_groups": 2, "mamba_num_heads": 4, "mamba_head_dim": 8, "n_group": 1,
                   "moe_latent_size": 24, "moe_shared_expert_intermediate_size": 20},
    "step3p5": {"layer_types": ["full_attention", "sliding_attention"] * 2, "num_sliding_attention_heads": 6,
                "share_expert_dim": 24, "swiglu_limits": [0.0, 0.5, 0.3, 0.0], "swiglu_limits_shared": [0.0, 0.2] * 2,
                "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    "glm5_next_text": {"num_key_value_heads": 4, "qk_rope_head_dim": 0, "index_kpool": 4, "hc_mult": 3,
                       "layer_types": ["linear_attention", "indexed_attention", "indexed_attention",
                                       "linear_attention"], "indexer_types": ["full", "full", "shared", "full"]},
    "hy_v4": {"num_key_value_heads": 4, "indexer_types": ["full", "full", "shared", "shared"], "hc_mult": 3},
    "hy_v4_vl_text": {"num_key_value_heads": 4, "indexer_types": ["full", "full", "shared", "shared"], "hc_mult": 3,
                      "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"] * 2, "index_n_heads": 2,
                           "index_block_size": 4, "dense_intermediate_size": 40,
                           "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    "qwen4_exp_text": {"layer_types": ["linear_attention", "indexed_attention"] * 2, "indexer_n_heads": 2,
                       "indexer_kv_heads": 1, "indexer_head_dim": 12, "indexer_budget": 256,
                       "indexer_compress_ratio": 4,
                       "ple_layer_ids": [1, 3], "ple_embed_dim": 24, "heads_per_ngram": 2, "ngram_vocab_size_base": 50,
                       "make_ngram_vocab_size_divisible_by": 8, "split_ngram_parts": 4, "hc_count": 3, "hc_lowrank": 6},
    "sarvam_mla": {"num_key_value_heads": 4},
    "zaya": {"num_experts_per_tok": 1, "layer_types": ["hybrid", "hybrid_sliding"] * 2, "router_hidden_size": 12},
}  # fmt: skip
# transformers saves these under names that no checkpoint has
_RENAMED = {"kimi_k25": ("language_model.model.blocks.", "language_model.model.layers.")}
_KEPT_AS_BUILT = ("A_log", "dt_bias")  # decay: random values would let states explode
_RECURRENT = ("linear", "conv1d", "mixer.in_proj")
_GENTLE = 0.05  # spread of the weights of recurrent layers, whose rounding errors would grow

# multimodal model -> its language model
WRAPPERS = {
    "aria": "aria_text",
    "dots3_note": "dots3_note_text",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "gemma4": "gemma4_text",
    "glm4v_moe": "glm4v_moe_text",
    "kimi_k25": "deepseek_v3",
    "llama4": "llama4_text",
    "mistral3": "mistral4",
    "glm5_next": "glm5_next_text",
    "inkling2": "inkling2_text",
    "inkling2_loop": "inkling2_loop_text",
    "hy_v4_vl": "hy_v4_vl_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral_large4": "mistral_large4_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen4_exp": "qwen4_exp_text",
    "step3p7": "step3p5",
}
# text parts that transformers runs inside a wrapper only
_INSIDE_ONLY = frozenset(
    {
        "ernie4_5_vl_moe_text",
        "glm4v_moe_text",
        "glm5_next_text",
        "hy_v4_vl_text",
        "mistral4",
        "mistral_large4_text",
        "qwen3_vl_moe_text",
        "step3p5",
    }
)
# read and compared with the modules on the meta device, but their wrappers cannot be built tiny
NOT_TINY = frozenset({"deepseek_ocr2_text", "muse_spark_text", "qwen3_omni_moe_text"})
# every family the program knows, and multimodal models around some of them
TINY_FAMILIES = tuple(sorted({*FAMILIES, *WRAPPERS} - _INSIDE_ONLY - NOT_TINY))
# sizes of the parts for pictures, which are loaded where the model has them and never used here
_VISION: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "depth": 2, "num_heads": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "out_hidden_size": 32, "patch_size": 4,
    "image_size": 8, "num_position_embeddings": 4, "deepstack_visual_indexes": [0], "position_embedding_size": 4,
    "vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16, "pixel_shuffle_ratio": 0.5,
    "text_hidden_size": 32, "projection_hidden_dim": 16, "posemb_grid_size": 4,
    "pos_emb_height": 4, "pos_emb_width": 4, "pos_emb_time": 1, "fullatt_block_indexes": [0],
}  # fmt: skip

# parts around a text part that need sizes of their own
_AROUND: dict[str, dict[str, Any]] = {
    "dots3_note": {
        "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                          "moe_intermediate_size": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
                          "mlp_layer_types": ["dense", "sparse"], "adapter_in_dim": 16, "adapter_out_dim": 32},
        "audio_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                         "feature_size": 8, "downsample_hidden_size": 8, "adapter_input_size": 16,
                         "adapter_out_dim": 32},
    },
}  # fmt: skip


def tiny_config(model_type: str, **more: Any) -> Any:
    """The configuration of a tiny model of a type."""
    if model_type in WRAPPERS:
        return _wrapped(model_type, **more)
    config_class = CONFIG_MAPPING[model_type]
    own = _OWN.get(model_type, {}) | more
    known = _known(config_class) | set(own)
    return config_class(**{name: value for name, value in (_SIZES | own).items() if name in known})


def _wrapped(model_type: str, **more: Any) -> Any:
    """A multimodal configuration around a tiny text part."""
    config_class: Any = CONFIG_MAPPING[model_type]
    parts: dict[str, Any] = {"text_config": tiny_config(WRAPPERS[model_type], **more)}
    default = config_class()
    if (vision := getattr(default, "vision_config", None)) is not None:
        known = _known(type(vision))
        sizes = {name: value for name, value in _VISION.items() if name in known}
        parts["vision_config"] = {"model_type": vision.model_type, **sizes}
    if hasattr(default, "audio_config"):
        parts["audio_config"] = None
    parts |= _AROUND.get(model_type, {})
    return config_class(**parts, tie_word_embeddings=False)


def _rename(file: Path, old: str, new: str) -> None:
    tensors = {name.replace(old, new): tensor for name, tensor in load_file(file).items()}
    save_file(tensors, file, metadata={"format": "pt"})


def _known(config_class: Any) -> set[str]:
    """Keys a configuration class takes."""
    named = inspect.signature(config_class.__init__).parameters
    return {*config_class().to_dict(), *named, *config_class.attribute_map}


def tiny_family(model_type: str, folder: Path, dtype: torch.dtype = torch.float32, **more: Any) -> TinyModel:
    """Build and save a tiny model of a family; its shape is read back as the program reads it."""
    return save_tiny(tiny_config(model_type, **more), folder, dtype)


def draw_tables(model: Any, config: Any) -> None:
    """Random experts for every word, where a layer has a table of them."""
    for name, buffer in model.named_buffers():
        if name.endswith("tid2eid"):
            experts = config.get_text_config().num_local_experts
            buffer.copy_(torch.rand(buffer.shape[0], experts).argsort(dim=1)[:, : buffer.shape[1]])


def save_tiny(config: Any, folder: Path, dtype: torch.dtype = torch.float32) -> TinyModel:
    """Build and save the model of a configuration with lively random weights."""
    torch.manual_seed(1)
    whole: Any = AutoModelForImageTextToText._model_mapping
    kind = whole[type(config)] if type(config) in whole else model_class(config)
    model = kind._from_config(config, dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith(_KEPT_AS_BUILT):
                parameter.normal_(
                    0, (_GENTLE if any(part in name for part in _RECURRENT) else 0.2) if parameter.dim() > 1 else 0.5
                )
        draw_tables(model, config)
    model.save_pretrained(folder)
    if old_and_new := _RENAMED.get(config.model_type):
        _rename(folder / "model.safetensors", *old_and_new)
    tiny_tokenizer().save_pretrained(folder)
    return TinyModel(folder, read_shape(folder))
