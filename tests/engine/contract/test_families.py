"""The family rules against the modules that transformers builds: this table is the gate for an upgrade of transformers.

Every case writes a config.json as transformers writes it, reads it without torch, and compares experts, KV shapes,
windows and dense bytes with the real module on the meta device.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING, DynamicCache
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.models.auto import modeling_auto

from engine.contract.checkpoint import read_shape
from engine.contract.errors import CannotEstimateError, UnsupportedModelError
from engine.contract.families_excluded import CANNOT_ESTIMATE, NOT_RUNNABLE
from engine.contract.families_table import FAMILIES
from engine.contract.formats import WeightFormat
from engine.contract.shape import KvShape, LayerShape, ModelShape, StateShape, StateTensor
from engine.model.experts_adapters import adopt_experts
from engine.model.experts_function import PART_OF_PARAMETER
from tests.support.kept_pools import kept_pending, kept_pools

_LAYER = re.compile(r"(?:layers|blocks)\.(\d+)\.")
_PICTURES = re.compile(r"vis(ion|ual)(?!_moe)|audio|projector|separator|resampler")
_SMALL_GEMMA = {
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
        _SMALL_GEMMA,
        {**_SMALL_GEMMA, "attention_k_eq_v": True, "num_global_key_value_heads": 2, "attention_bias": True},
        {**_SMALL_GEMMA, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 500,
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

_LATENT_SIZES = {"kv_lora_rank": 96, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 80}
_INDEX_SIZES = {"index_n_heads": 4, "index_head_dim": 64}
_HALF_LINEAR = ["linear_attention", "full_attention"] * 4

# the same for families that do not keep keys and values of every head in every layer
OTHER_CASES: dict[str, list[dict[str, Any]]] = {
    "axk1": [{}, {**_LATENT_SIZES, "attention_bias": True, "n_shared_experts": 2}],
    "axk2": [{}, {**_LATENT_SIZES, **_INDEX_SIZES, "gated_norm_rank": 8, "attention_bias": True}],
    "bailing_hybrid": [
        {"head_dim": 64},
        {**_LATENT_SIZES, "head_dim": 32, "q_lora_rank": 48, "layer_group_size": 3, "attention_bias": True},
    ],
    "dbrx": [
        {"attn_config": {"kv_n_heads": 4, "clip_qkv": 8, "rope_theta": 1e4}},
        {"d_model": 1024, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 5e5},
         "ffn_config": {"ffn_hidden_size": 300, "moe_num_experts": 16, "moe_top_k": 4}},
    ],
    "deepseek_v2": [
        {"num_experts_per_tok": 6, "num_key_value_heads": 32},
        {**_LATENT_SIZES, "num_experts_per_tok": 6, "q_lora_rank": None, "mlp_bias": True, "attention_bias": True,
         "first_k_dense_replace": 1},
    ],
    "deepseek_v3": [{}, {**_LATENT_SIZES, "q_lora_rank": None, "attention_bias": True, "first_k_dense_replace": 1}],
    "deepseek_v32": [{}, {**_LATENT_SIZES, **_INDEX_SIZES, "attention_bias": True}],
    "deepseek_v4": [
        {},
        {"layer_types": ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention",
                         "sliding_attention"] * 2, "compress_rates": {"compressed_sparse_attention": 3,
         "heavily_compressed_attention": 16}, "mlp_bias": True, "tie_word_embeddings": True, "hc_mult": 2,
         "mlp_layer_types": ["moe"] * 4 + ["hash_moe"] * 4, "sliding_window": 64, "head_dim": 128, **_INDEX_SIZES},
    ],
    "glm4_moe_lite": [{}, {**_LATENT_SIZES, "attention_bias": True, "mlp_layer_types": ["sparse", "dense"] * 4}],
    "glm_moe_dsa": [{}, {**_LATENT_SIZES, **_INDEX_SIZES, "indexer_types": ["full", "full", "shared", "shared"] * 2}],
    "hy_v4": [
        {},
        {**_LATENT_SIZES, **_INDEX_SIZES, "indexer_types": ["full", "shared"] * 4, "attention_bias": True, "hc_mult": 2,
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
        {**_LATENT_SIZES, "layer_types": _HALF_LINEAR, "linear_num_heads": 8, "linear_head_dim": 48,
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
        {**_LATENT_SIZES, "head_dim": 32, "zero_expert_num": 0, "attention_bias": True, "router_bias": True},
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
    "sarvam_mla": [{}, {**_LATENT_SIZES, "q_lora_rank": 64, "num_shared_experts": 2}],
    "zaya": [
        {},
        {"layer_types": ["hybrid", "hybrid_sliding"] * 4, "sliding_window": 64, "cca_time0": 3, "attention_bias": True,
         "lm_head_bias": True, "tie_word_embeddings": False, "num_key_value_heads": 4},
    ],
}  # fmt: skip

# wrapper type -> variants of (what differs in the text part, what differs around it)
NESTED: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "aria": [({"head_dim": 128}, {})],
    "deepseek_ocr2": [({"mlp_layer_types": ["dense"] + ["sparse"] * 7, "num_experts_per_tok": 6}, {})],
    "dots3_note": [
        ({}, {}),
        ({**_LATENT_SIZES, **_INDEX_SIZES, "layer_types": ["full_attention", "sliding_attention"] * 4,
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
        (_SMALL_GEMMA, {"vision_config": None, "audio_config": None}),
        (_SMALL_GEMMA, {"vision_config": None, "audio_config": None, "tie_word_embeddings": False}),
    ],
    "glm4v_moe": [({"head_dim": 128}, {}), ({"head_dim": 128, "attention_bias": False}, {"tie_word_embeddings": True})],
    "kimi_k25": [
        ({"model_type": "deepseek_v3", "num_key_value_heads": 128}, {}),
        ({"model_type": "deepseek_v3", "first_k_dense_replace": 1}, {"tie_word_embeddings": False}),
    ],
    "llama4": [({}, {}), ({"interleave_moe_layer_step": 2}, {})],
    "glm5_next": [
        ({}, {}),
        ({**_LATENT_SIZES, **_INDEX_SIZES, "qk_rope_head_dim": 0, "layer_types": ["linear_attention", "full_attention",
          "full_attention", "linear_attention"] * 2, "indexer_types": ["full", "full", "shared", "full"] * 2,
          "hc_mult": 2,
          "linear_attn_config": {"num_heads": 8, "head_dim": 48, "short_conv_kernel_size": 3}, "attention_bias": True,
          "index_kpool": 8, "mlp_layer_types": ["sparse", "dense"] * 4}, {"tie_word_embeddings": True}),
    ],
    "hy_v4_vl": [
        ({}, {}),
        ({**_LATENT_SIZES, **_INDEX_SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
          "mrope_section": [6, 5, 5]}, "attention_bias": True}, {"tie_word_embeddings": True}),
    ],
    "minimax_m3_vl": [({"layer_types": ["full_attention", "minimax_m3_sparse"] * 4}, {})],
    "mistral3": [
        ({"model_type": "mistral4"}, {}),
        ({"model_type": "mistral4", **_LATENT_SIZES, "attention_bias": True, "first_k_dense_replace": 2}, {}),
    ],
    "mistral_large4": [
        ({}, {}),
        ({**_LATENT_SIZES, **_INDEX_SIZES, "no_rope_layers": [1, 0] * 4, "kv_source_layers": [0, 1, 0, 1, 4, 5, 4, 5],
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
_TO_BE_COMPLETE: dict[str, dict[str, Any]] = {
    "deepseek_ocr2_text": {"mlp_layer_types": ["sparse"] * 32, "num_experts_per_tok": 6},
    "glm4v_moe_text": {"head_dim": 128},
    "qwen3_omni_moe_text": {"head_dim": 128},
}

# their masks or their attention look at values, which tokens do not have on the meta device
_LOOK_AT_VALUES = ("gemma4", "glm5_next", "jetmoe", "qwen4_exp_text")

# qwen3_omni_moe is not built whole: it speaks, too. Its thinker is built above and holds the whole text part.


def _flat() -> list[Any]:
    return [
        pytest.param(CONFIG_MAPPING[kind], {"num_hidden_layers": 8, **extra}, {}, id=f"{kind}-{index}")
        for kind, variants in (CASES | OTHER_CASES).items()
        for index, extra in enumerate(variants)
    ]


def _nested() -> list[Any]:
    return [
        pytest.param(
            CONFIG_MAPPING[kind],
            {},
            {"text_config": {"num_hidden_layers": 8, **text}, **around},
            id=f"{kind}-{index}",
        )
        for kind, variants in NESTED.items()
        for index, (text, around) in enumerate(variants)
    ]


def _build(config: Any) -> Any:
    mappings: list[Any] = [
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    ]
    kind = next(mapping[type(config)] for mapping in mappings if type(config) in mapping)
    if kind.config_class is config.sub_configs.get("text_config"):  # transformers takes the text part alone
        config = config.get_text_config()
    with torch.device("meta"):
        model = kind._from_config(config, dtype=torch.bfloat16)
    adopt_experts(model)
    return model


def _expert_modules(model: Any) -> dict[int, Any]:
    found = {}
    for path, module in model.named_modules():
        if hasattr(module, "has_gate") and hasattr(module, "is_transposed"):
            match = _LAYER.search(path + ".")
            assert match is not None
            found[int(match[1])] = module
    return found


def _dense_bytes(model: Any) -> int:
    """Bytes as from_pretrained would load them in bf16, without routed experts and without parts for pictures."""
    experts = {
        id(parameter)
        for module in _expert_modules(model).values()
        for name, parameter in module.named_parameters(recurse=False)
        if name in PART_OF_PARAMETER
    }
    strict = model._keep_in_fp32_modules_strict
    names = {name for name in model.state_dict() if not _PICTURES.search(name)}
    seen: set[int] = set()
    total = 0
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    for name, tensor in named:
        if name not in names or id(tensor) in experts or id(tensor) in seen:
            continue
        seen.add(id(tensor))
        fp32 = tensor.dtype is torch.float32 or any(part in name for part in strict)
        total += tensor.numel() * (4 if fp32 else 2) if tensor.is_floating_point() else tensor.nbytes
    return total


def _kv_shapes(model: Any, config: Any) -> list[KvShape | None]:
    attention = {
        int(match[1]): module
        for path, module in model.named_modules()
        if (match := _LAYER.search(path)) and path.endswith("self_attn") and not re.search(r"vis(ion|ual)|audio", path)
    }
    cached: list[Any] = list(DynamicCache(config=config).layers)
    shapes: list[KvShape | None] = []
    for index in sorted(attention):
        module, layer = attention[index], cached[index]
        if not hasattr(module, "k_proj"):
            shapes.append(None)
            continue
        kv_heads = module.k_proj.out_features // module.head_dim
        values = module.k_proj if module.v_proj is None else module.v_proj
        shapes.append(
            KvShape(
                n_kv_heads=kv_heads,
                key_dim=module.head_dim,
                value_dim=values.out_features // kv_heads,
                window=layer.sliding_window if layer.is_sliding else None,
                n_heads=module.q_proj.out_features // module.head_dim,
                writes_scores=not model._supports_sdpa,
            )
        )
    return shapes


class _NoExperts:
    def forward(self, hidden: Any, index: Any, weights: Any, math: Any) -> Any:
        return torch.zeros_like(hidden)


def _experts_that_do_nothing(module: Any, hidden: Any, index: Any, weights: Any) -> Any:
    return torch.zeros_like(hidden)


def _kept(model: Any) -> list[tuple[KvShape | None, StateShape | None]]:
    """What a few tokens leave in the model's own cache; nothing is computed on the meta device."""
    ALL_EXPERTS_FUNCTIONS.register("nothing", _experts_that_do_nothing)
    if model._can_set_experts_implementation():
        model.set_experts_implementation("nothing")
    for module in _expert_modules(model).values():
        module.__dict__["splitpin"] = (_NoExperts(), None)
    with torch.inference_mode():
        tokens = torch.zeros(1, 5, dtype=torch.long, device="meta")
        cached: Any = model(input_ids=tokens, use_cache=True, logits_to_keep=1).cache
    layers = [*cached.layers, *[None] * (len(cached) - len(cached.layers))]
    once = any(hasattr(layer, "compressed_kv") for layer in layers)  # keys are values, which sliding layers keep twice
    return [(_kept_kv(layer, once), _kept_state(cached, index, layer)) for index, layer in enumerate(layers)]


def _kept_kv(layer: Any, once: bool) -> KvShape | None:
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    index = getattr(layer, "indexer_keys", getattr(layer, "idx_keys", None))
    if (keys is None or values is None) and index is None:
        return None
    positions = getattr(layer, "indexer_position_ids", None)
    return KvShape(
        n_kv_heads=1 if keys is None else keys.shape[1],
        key_dim=0 if keys is None else keys.shape[3],
        value_dim=0 if once or values is None else values.shape[3],
        keys_are_values=once,
        window=getattr(layer, "sliding_window", None),
        pooled=kept_pools(layer),
        index_dim=0 if index is None else index.shape[-1],
        index_blocks=hasattr(layer, "idx_keys"),
        index_positions=0 if positions is None else positions.shape[0],
    )


def _kept_state(cached: Any, number: int, layer: Any) -> StateShape | None:
    convolutions = [*getattr(layer, "conv_states", {}).values()]
    recurrent = [*getattr(layer, "recurrent_states", {}).values()]
    linear = getattr(cached, "linear_cache", [])
    if number < len(linear) and len(linear[number]):
        recurrent.append(linear[number])
    tensors = [("convolution", state) for state in convolutions] + [("recurrent", state) for state in recurrent]
    dtypes = {torch.bfloat16: "model", torch.float32: "fp32", torch.int64: "int64"}
    found = tuple(
        StateTensor.model_validate({"kind": kind, "sizes": tuple(state.shape[1:]), "dtype": dtypes[state.dtype]})
        for kind, state in tensors
        if state is not None
    )
    found += kept_pending(layer)
    return StateShape(tensors=found) if found else None


def _memory_only(layer: LayerShape) -> tuple[KvShape | None, StateShape | None]:
    """Only what is kept, without what is computed from it."""
    dropped = {"n_heads": None, "writes_scores": False, "index_heads": 0, "expanded_values": 0, "chunked": False}
    kv = layer.kv.model_copy(update=dropped) if layer.kv else None
    return kv, StateShape(tensors=layer.state.tensors) if layer.state else None


def _saved(config: Any, folder: Path) -> ModelShape:
    config.save_pretrained(folder)
    return read_shape(folder)


@pytest.mark.parametrize(("kind", "plain", "nested"), [*_flat(), *_nested()])
def test_the_rules_say_what_transformers_builds(
    kind: type[Any], plain: dict[str, Any], nested: dict[str, Any], tmp_path: Path
) -> None:
    config = kind(**plain, **nested)
    model = _build(config)
    shape = _saved(config, tmp_path)
    modules = _expert_modules(model)
    assert shape.moe_layers == tuple(sorted(modules))
    for module in modules.values():
        up = (module.gate_up_proj if module.has_gate else module.up_proj).shape
        down = module.down_proj.shape
        if getattr(module, "down_turned", False):
            down = down.__class__((down[0], down[2], down[1]))
        if module.is_transposed:
            up, down = up.__class__((up[0], up[2], up[1])), down.__class__((down[0], down[2], down[1]))
        experts = shape.experts
        assert tuple(up) == (experts.n_experts, (1 + experts.has_gate) * experts.inner, experts.width)
        assert tuple(down) == (experts.n_experts, experts.width, experts.inner)
        assert module.has_bias == experts.has_bias
        assert module.has_gate == experts.has_gate
    text = config.get_text_config(decoder=True)
    if text.model_type in CASES or text.model_type in NESTED_TEXTS:
        assert [layer.kv for layer in shape.layers] == _kv_shapes(model, text)
    if config.model_type not in _LOOK_AT_VALUES:
        assert [_memory_only(layer) for layer in shape.cached_layers] == _kept(model)
    assert len(shape.cached_layers) == text.num_hidden_layers
    assert shape.vocab_size == text.vocab_size
    assert shape.max_context_tokens == text.max_position_embeddings
    assert shape.dense_format is WeightFormat.BF16
    assert shape.dense_bytes == _dense_bytes(model)
    assert not [note for note in shape.assumptions if "taken, the default" in note]


@pytest.mark.parametrize("kind", sorted(set(FAMILIES) - set(NOT_RUNNABLE)))
def test_a_missing_vocabulary_context_or_top_k_is_the_class_default_and_is_named(kind: str, tmp_path: Path) -> None:
    default = CONFIG_MAPPING[kind]()
    complete = _TO_BE_COMPLETE.get(kind, (CASES | OTHER_CASES).get(kind, [{}])[0])
    if "layer_types" in complete:
        complete = {"num_hidden_layers": 8, **complete}
    CONFIG_MAPPING[kind](**complete).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text("utf-8"))
    names = {"vocab_size", "max_position_embeddings", "model_max_length"}
    if getattr(default, "num_experts_per_tok", None) is not None:
        names |= {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"}
    dropped = names & set(values)
    file.write_text(json.dumps({key: value for key, value in values.items() if key not in dropped}), "utf-8")
    shape = read_shape(tmp_path)
    assert shape.vocab_size == default.vocab_size
    assert shape.max_context_tokens == default.max_position_embeddings
    top_k = getattr(default, "num_experts_per_tok", None)
    if top_k is not None:
        assert shape.experts.top_k == top_k
    assert len([note for note in shape.assumptions if "taken, the default" in note]) == len(dropped)


def test_every_type_with_routed_experts_has_rules_or_a_reason() -> None:
    models = Path(transformers.__file__).parent / "models"
    with_interface = {
        file.parent.name
        for file in models.glob("*/modeling_*.py")
        if "@use_experts_implementation" in file.read_text("utf-8")
    }
    known = {name.removesuffix("_text") for name in FAMILIES} | set(CANNOT_ESTIMATE)
    assert with_interface - known == set()


def test_every_family_is_compared_with_its_module() -> None:
    wrapped = {str(text.get("model_type", kind)) for kind, variants in NESTED.items() for text, _ in variants}
    compared = {name.removesuffix("_text").removesuffix("_thinker") for name in (*CASES, *OTHER_CASES, *wrapped)}
    assert {name.removesuffix("_text") for name in FAMILIES} == compared


@pytest.mark.parametrize("kind", sorted(CANNOT_ESTIMATE))
def test_other_attention_is_refused_with_its_reason(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}", "num_hidden_layers": 4}}', "utf-8")
    with pytest.raises(CannotEstimateError, match=re.escape(CANNOT_ESTIMATE[kind])):
        read_shape(tmp_path)


@pytest.mark.parametrize("kind", sorted(NOT_RUNNABLE))
def test_experts_outside_of_the_interface_are_refused_with_their_reason(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}", "num_hidden_layers": 4}}', "utf-8")
    with pytest.raises(UnsupportedModelError, match=re.escape(NOT_RUNNABLE[kind])):
        read_shape(tmp_path)
