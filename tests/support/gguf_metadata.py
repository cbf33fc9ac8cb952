"""What llama.cpp's conversion scripts write about a model, from its configuration."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Architecture:
    """A kind of GGUF file: `name` as in general.architecture, and the family of transformers it is made from."""

    name: str
    family: str
    inner_is_plain: bool = False  # the width of an expert is `intermediate_size`
    config: dict[str, Any] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()


_LATENT = {"num_key_value_heads": 4, "n_group": 1, "topk_group": 1}
ARCHITECTURES: dict[str, Architecture] = {
    "deepseek2-v2": Architecture(
        "deepseek2", "deepseek_v2", config={**_LATENT, "n_group": None, "topk_group": None, "norm_topk_prob": False}
    ),
    "deepseek2-v3": Architecture("deepseek2", "deepseek_v3", config={**_LATENT, "routed_scaling_factor": 2.5}),
    "deepseek2-groups": Architecture("deepseek2", "deepseek_v3", config={"num_key_value_heads": 4}),
    "deepseek2-mla": Architecture(
        "deepseek2", "deepseek_v3", config={**_LATENT, "q_lora_rank": None}, traits=frozenset({"mla"})
    ),
    "deepseek2-both": Architecture("deepseek2", "deepseek_v3", config=_LATENT, traits=frozenset({"both"})),
    "dots1": Architecture("dots1", "dots1", config={"n_group": 1}),
    "ernie4_5-moe": Architecture("ernie4_5-moe", "ernie4_5_moe", config={"moe_layer_end_index": -1}),
    "glm4moe": Architecture(
        "glm4moe", "glm4_moe",
        config={"n_group": 1, "attention_bias": True, "use_qk_norm": True, "partial_rotary_factor": 0.5},
    ),
    "gpt-oss": Architecture("gpt-oss", "gpt_oss", True, config={"rope_theta": 150000.0}),
    "granitemoe": Architecture(
        "granitemoe", "granitemoe", True,
        config={"attention_multiplier": 0.25, "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
                "logits_scaling": 2.0},
    ),
    "granitemoeshared": Architecture("granitemoe", "granitemoeshared", True),
    "hunyuan-moe": Architecture("hunyuan-moe", "hunyuan_v1_moe", True),
    "llama": Architecture("llama", "mixtral", True, config={"sliding_window": None}),
    "minimax-m2": Architecture("minimax-m2", "minimax_m2", True, config={"rotary_dim": 4}),
    "olmoe": Architecture("olmoe", "olmoe", True, config={"norm_topk_prob": False}),
    "phimoe": Architecture(
        "phimoe", "phimoe", True, config={"sliding_window": None, "attention_bias": True, "lm_head_bias": True}
    ),
    "qwen2moe": Architecture(
        "qwen2moe", "qwen2_moe", config={"norm_topk_prob": False, "use_sliding_window": False}
    ),
    "qwen35moe": Architecture(
        "qwen35moe", "qwen3_5_moe_text",
        config={"head_dim": 16,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                                    "mrope_section": [2, 1, 1], "mrope_interleaved": True}},
    ),
    "qwen3moe": Architecture("qwen3moe", "qwen3_moe"),
    "qwen3moe-yarn": Architecture(
        "qwen3moe", "qwen3_moe",
        config={"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                                    "original_max_position_embeddings": 128}},
    ),
    "qwen3next": Architecture("qwen3next", "qwen3_next", config={"partial_rotary_factor": 0.5}),
}  # fmt: skip


def metadata(arch: str, config: Any) -> dict[str, Any]:
    """Keys without the architecture in front."""
    known = ARCHITECTURES[arch]

    def of(*names: str) -> Any:
        return next((value for name in names if (value := getattr(config, name, None)) is not None), None)

    head = of("head_dim") or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    found: dict[str, Any] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": of("intermediate_size"),
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float(rope["rope_theta"]),
        "expert_count": of("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        "expert_used_count": of("num_experts_per_tok", "moe_k", "moe_topk"),
        "expert_feed_forward_length": config.intermediate_size if known.inner_is_plain
        else config.moe_intermediate_size,
    }  # fmt: skip
    if known.name != "deepseek2":
        found |= {"attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head}
    if (factor := rope.get("partial_rotary_factor")) is not None:
        found["rope.dimension_count"] = int(head * factor)
    if rope.get("rope_type") == "yarn":
        found |= {
            "rope.scaling.type": "yarn", "rope.scaling.factor": float(rope["factor"]),
            "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        }  # fmt: skip
    found |= {key: value for key, value in _own(known, config).items() if value is not None}
    return {key: value for key, value in found.items() if value is not None}


def _own(known: Architecture, config: Any) -> dict[str, Any]:
    match known.name:
        case "deepseek2":
            return _latent(known, config)
        case "dots1":
            return {**_routing(config), "leading_dense_block_count": config.first_k_dense_replace}
        case "ernie4_5-moe":
            return {
                "leading_dense_block_count": config.moe_layer_start_index,
                "interleave_moe_layer_step": config.moe_layer_interval,
                "expert_shared_count": config.moe_num_shared_experts,
            }
        case "glm4moe":
            return {**_routing(config), "leading_dense_block_count": config.first_k_dense_replace}
        case "gpt-oss":
            return {"attention.sliding_window": config.sliding_window}
        case "granitemoe":
            shared = getattr(config, "shared_intermediate_size", None)
            return {
                "attention.scale": float(config.attention_multiplier),
                "embedding_scale": float(config.embedding_multiplier),
                "residual_scale": float(config.residual_multiplier),
                "logit_scale": float(config.logits_scaling),
                "expert_shared_feed_forward_length": shared if known.family == "granitemoeshared" else None,
            }
        case "hunyuan-moe":
            return {"expert_shared_feed_forward_length": config.intermediate_size, "expert_shared_count": 1}
        case "minimax-m2":
            return {"expert_gating_func": 2}
        case "qwen2moe":
            return {"expert_shared_feed_forward_length": config.shared_expert_intermediate_size}
        case "qwen3next" | "qwen35moe":
            return _delta(known, config)
    return {}


def _routing(config: Any) -> dict[str, Any]:
    groups = config.n_group if config.n_group and config.n_group > 1 else None
    return {
        "expert_shared_count": config.n_shared_experts,
        "expert_weights_scale": float(config.routed_scaling_factor),
        "expert_weights_norm": True if config.norm_topk_prob else None,
        "expert_group_count": groups,
        "expert_group_used_count": config.topk_group if groups else None,
    }


def _latent(known: Architecture, config: Any) -> dict[str, Any]:
    rope, nope = config.qk_rope_head_dim, config.qk_nope_head_dim
    found = {
        **_routing(config),
        "leading_dense_block_count": config.first_k_dense_replace,
        "expert_gating_func": 2 if known.family == "deepseek_v3" else 1,
        "attention.kv_lora_rank": config.kv_lora_rank,
        "attention.q_lora_rank": config.q_lora_rank,
        "rope.dimension_count": rope,
    }
    if "mla" in known.traits:
        return found | {
            "attention.head_count_kv": 1,
            "attention.key_length": config.kv_lora_rank + rope,
            "attention.value_length": config.kv_lora_rank,
            "attention.key_length_mla": nope + rope,
            "attention.value_length_mla": config.v_head_dim,
        }
    return found | {"attention.key_length": nope + rope, "attention.value_length": config.v_head_dim}


def _delta(known: Architecture, config: Any) -> dict[str, Any]:
    found = {
        "expert_shared_feed_forward_length": config.shared_expert_intermediate_size,
        "ssm.conv_kernel": config.linear_conv_kernel_dim,
        "ssm.state_size": config.linear_key_head_dim,
        "ssm.group_count": config.linear_num_key_heads,
        "ssm.time_step_rank": config.linear_num_value_heads,
        "ssm.inner_size": config.linear_value_head_dim * config.linear_num_value_heads,
        "full_attention_interval": config.layer_types.index("full_attention") + 1,
    }
    if known.name == "qwen35moe":
        found["rope.dimension_sections"] = [*config.rope_parameters["mrope_section"], 0]
    return found
