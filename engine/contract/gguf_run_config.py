"""From the metadata of a GGUF file to everything transformers' configuration needs to compute with.

gguf_config.py has what memory depends on; here are the norms, positions, routing and scales beside it. Where a file
leaves a value out, llama.cpp's own default stands, which is what such files were written for.
"""

from collections.abc import Callable, Mapping
from typing import Any

from engine.contract.errors import CannotEstimateError
from engine.contract.gguf_config import GgufFacts, gguf_config
from engine.contract.gguf_headers import GgufModel
from engine.contract.gguf_names import why_not_run

_FIX = "Download the model again, or choose it as a folder with config.json and safetensors files."
_TOKENS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
_ROPE_TYPES = (None, "none", "linear", "yarn")
_PARTLY_ROTATED = frozenset({"glm4moe", "minimax-m2", "qwen35moe", "qwen3next"})
_LATENT = frozenset({"deepseek2"})

_Values = Mapping[str, Any]
_Own = Callable[[GgufFacts, _Values], _Values]


def gguf_run_config(model: GgufModel) -> dict[str, Any]:
    """A configuration with the keys of config.json; experts under each of the names that families have for them.

    Raises:
        CannotEstimateError: a fact is missing, or the architecture is not in the table.
        UnsupportedModelError: not a Mixture-of-Experts model.
    """
    base = gguf_config(model)
    facts = GgufFacts(model, str(model.metadata["general.architecture"]))
    epsilon = facts.real("attention.layer_norm_rms_epsilon")
    if epsilon is None:
        epsilon = facts.real("attention.layer_norm_epsilon")
    if epsilon is None:
        raise CannotEstimateError(
            f"The GGUF file does not say {facts.arch}.attention.layer_norm_rms_epsilon; it cannot be run without it.",
            _FIX,
            fact="attention.layer_norm_rms_epsilon",
        )
    experts, active = base.get("num_experts"), base.get("num_experts_per_tok")
    config = {
        **base,
        "num_local_experts": experts,
        "n_routed_experts": experts,
        "moe_num_experts": experts,
        "moe_k": active,
        "moe_topk": active,
        "moe_num_shared_experts": base.get("n_shared_experts"),
        "rms_norm_eps": epsilon,
        "rope_parameters": _rope(facts, base),
    }
    for name, key in _TOKENS.items():
        token = model.metadata.get(f"tokenizer.ggml.{key}")
        config[name] = token if isinstance(token, int) else None
    rope: dict[str, Any] = config["rope_parameters"]
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope["partial_rotary_factor"]
    return {**config, **_OWN.get(facts.arch, _nothing)(facts, base)}


def why_gguf_not_run(model: GgufModel, dense: list[str], config: _Values) -> str | None:
    """Why the engine cannot run a model whose bytes are known, in words; None: it can.

    Args:
        dense: names of the tensors that are no routed experts.
        config: what `gguf_config` found.
    """
    arch = str(model.metadata["general.architecture"])
    if (reason := why_not_run(arch, dense)) is not None:
        return reason
    facts = GgufFacts(model, arch)
    scaling = facts.given("rope.scaling.type")
    if scaling not in _ROPE_TYPES:
        return f"its positions are scaled in a way that is not known ({scaling!s:.40})"
    rotated, size = facts.number("rope.dimension_count"), config.get("head_dim")
    if arch not in _PARTLY_ROTATED | _LATENT and None not in (rotated, size) and rotated != size:
        return f"it rotates {rotated} of {size} values of a head, which {arch} models do not do"
    return None


def _rope(facts: GgufFacts, base: _Values) -> dict[str, Any]:
    """Positions: base frequency, part of a head that is rotated, and how long contexts are stretched."""
    rope: dict[str, Any] = {"rope_theta": facts.real("rope.freq_base") or 10_000.0, "rope_type": "default"}
    if facts.arch in _PARTLY_ROTATED:
        size = base.get("head_dim")
        rotated = facts.number("rope.dimension_count") or size
        if size and rotated:
            rope["partial_rotary_factor"] = rotated / size
    scaling, factor = facts.given("rope.scaling.type"), facts.real("rope.scaling.factor")
    if scaling not in ("linear", "yarn") or not factor or factor == 1:
        return rope
    rope |= {"rope_type": scaling, "factor": factor}
    if scaling == "yarn":
        known = {
            "original_max_position_embeddings": facts.number("rope.scaling.original_context_length"),
            "beta_fast": facts.real("rope.scaling.yarn_beta_fast"),
            "beta_slow": facts.real("rope.scaling.yarn_beta_slow"),
            "attention_factor": facts.real("rope.scaling.yarn_attn_factor"),
        }
        rope |= {name: value for name, value in known.items() if value is not None}
    return rope


def _nothing(facts: GgufFacts, base: _Values) -> _Values:
    return {}


def _routing(facts: GgufFacts, *, normalised: bool = False) -> dict[str, Any]:
    """Scale and groups of the routed experts; a file without groups lets tokens choose among all experts."""
    return {
        "norm_topk_prob": facts.flag("expert_weights_norm", otherwise=normalised),
        "routed_scaling_factor": facts.real("expert_weights_scale") or 1.0,
        "n_group": facts.number("expert_group_count") or 1,
        "topk_group": facts.number("expert_group_used_count") or 1,
    }


def _latent(facts: GgufFacts, base: _Values) -> _Values:
    """The factor of attention for stretched contexts is stored as a tenth of `mscale_all_dim`."""
    rope = _rope(facts, base)
    multiplier = facts.real("rope.scaling.yarn_log_multiplier")
    if rope["rope_type"] == "yarn" and multiplier:
        rope |= {"mscale": 10 * multiplier, "mscale_all_dim": 10 * multiplier}
    routing = _routing(facts)
    method = "group_limited_greedy" if routing["n_group"] > 1 else "greedy"
    return {**routing, "topk_method": method, "rope_parameters": rope}


def _normalised(*, always: bool) -> _Own:
    def own(facts: GgufFacts, base: _Values) -> _Values:
        return {"norm_topk_prob": facts.flag("expert_weights_norm", otherwise=always)}

    return own


def _qwen2(facts: GgufFacts, base: _Values) -> _Values:
    return {"norm_topk_prob": False, "qkv_bias": facts.has("attn_q.bias")}


def _dots1(facts: GgufFacts, base: _Values) -> _Values:
    return {**_routing(facts), "max_window_layers": base["num_hidden_layers"]}


def _glm4(facts: GgufFacts, base: _Values) -> _Values:
    return {
        **_routing(facts, normalised=True),
        "attention_bias": facts.has("attn_q.bias"),
        "use_qk_norm": facts.has("attn_q_norm.weight"),
    }


def _gpt_oss(facts: GgufFacts, base: _Values) -> _Values:
    """`truncate` is what every gpt-oss configuration says; files do not repeat it."""
    return {"rope_parameters": {**_rope(facts, base), "truncate": False}}


def _granite(facts: GgufFacts, base: _Values) -> _Values:
    names = {
        "attention_multiplier": "attention.scale",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
    }
    found = {name: facts.real(key) for name, key in names.items()}
    if found["attention_multiplier"] is None and base.get("head_dim"):
        found["attention_multiplier"] = base["head_dim"] ** -0.5
    return {name: 1.0 if value is None else value for name, value in found.items()}


def _phimoe(facts: GgufFacts, base: _Values) -> _Values:
    return {"attention_bias": facts.has("attn_q.bias"), "lm_head_bias": facts.has_around("output.bias")}


def _delta(facts: GgufFacts, base: _Values) -> _Values:
    rope = _rope(facts, base)
    sections = facts.given("rope.dimension_sections")
    if isinstance(sections, tuple) and any(sections):
        rope |= {"mrope_section": [number for number in sections if number], "mrope_interleaved": True}
    every, layers = base["full_attention_interval"], range(1, base["num_hidden_layers"] + 1)
    kinds = ["linear_attention" if number % every else "full_attention" for number in layers]
    return {"norm_topk_prob": True, "rope_parameters": rope, "layer_types": kinds}


_OWN: dict[str, _Own] = {
    "deepseek2": _latent,
    "dots1": _dots1,
    "glm4moe": _glm4,
    "gpt-oss": _gpt_oss,
    "granitemoe": _granite,
    "olmoe": _normalised(always=False),
    "phimoe": _phimoe,
    "qwen2moe": _qwen2,
    "qwen35moe": _delta,
    "qwen3moe": _normalised(always=True),
    "qwen3next": _delta,
}
