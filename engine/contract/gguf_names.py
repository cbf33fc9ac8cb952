"""What the tensors of a GGUF file are called in transformers' modules, for each architecture the engine runs.

GGUF's names are those of `gguf.constants.TENSOR_NAMES`; which weight of a model stands behind each is what llama.cpp's
conversion scripts say. Routed experts are not in these tables: gguf_weights.py finds them. Where several tensors have
one target, the engine puts them together (engine/model/gguf_dense.py).
"""

import re
from collections.abc import Iterable, Mapping

_BLOCK = re.compile(r"blk\.(\d{1,9})\.(.+)")

_AROUND = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_AROUND |= {"output.weight": "lm_head.weight"}

_ATTENTION = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
}
_BIASES = {f"attn_{letter}.bias": f"self_attn.{letter}_proj.bias" for letter in "qkv"}
_BIASES |= {"attn_output.bias": "self_attn.o_proj.bias"}
_QK_NORMS = {f"attn_{letter}_norm.weight": f"self_attn.{letter}_norm.weight" for letter in "qk"}
_MLP = {f"ffn_{name}.weight": f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
_CORRECTION = {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}


def _shared(module: str) -> dict[str, str]:
    return {f"ffn_{name}_shexp.weight": f"{module}.{name}_proj.weight" for name in ("gate", "up", "down")}


_SHARED_WITH_GATE = {**_shared("mlp.shared_expert"), "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight"}
_DELTA = {
    **_SHARED_WITH_GATE,
    **_QK_NORMS,
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
}
_LATENT = {
    "attn_q_a.weight": "self_attn.q_a_proj.weight",
    "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
    "attn_q_b.weight": "self_attn.q_b_proj.weight",
    "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
    "attn_kv_b.weight": "self_attn.kv_b_proj.weight",
    "attn_k_b.weight": "self_attn.kv_b_proj.weight",
    "attn_v_b.weight": "self_attn.kv_b_proj.weight",
}

_LAYERS: dict[str, Mapping[str, str]] = {
    "deepseek2": {**_LATENT, **_MLP, **_shared("mlp.shared_experts"), **_CORRECTION},
    "dots1": {**_QK_NORMS, **_MLP, **_shared("mlp.shared_experts"), **_CORRECTION},
    "ernie4_5-moe": {
        **_MLP,
        **_shared("mlp.shared_experts"),
        "exp_probs_b.bias": "mlp.gate.moe_statics.e_score_correction_bias",
    },
    "glm4moe": {
        **_BIASES,
        **_QK_NORMS,
        **_MLP,
        **_shared("mlp.shared_experts"),
        **_CORRECTION,
        "post_attention_norm.weight": "post_attention_layernorm.weight",
    },
    "gpt-oss": {
        **_BIASES,
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "attn_sinks.weight": "self_attn.sinks",
        "ffn_gate_inp.weight": "mlp.router.weight",
        "ffn_gate_inp.bias": "mlp.router.bias",
    },
    "granitemoe": {
        "ffn_gate_inp.weight": "block_sparse_moe.router.weight",
        "ffn_gate_shexp.weight": "shared_mlp.input_linear.weight",
        "ffn_up_shexp.weight": "shared_mlp.input_linear.weight",
        "ffn_down_shexp.weight": "shared_mlp.output_linear.weight",
    },
    "hunyuan-moe": {
        **_shared("mlp.shared_mlp"),
        "attn_q_norm.weight": "self_attn.query_layernorm.weight",
        "attn_k_norm.weight": "self_attn.key_layernorm.weight",
        "ffn_gate_inp.weight": "mlp.gate.wg.weight",
    },
    "llama": {},
    "minimax-m2": {**_QK_NORMS, "exp_probs_b.bias": "mlp.e_score_correction_bias"},
    "olmoe": _QK_NORMS,
    "phimoe": {
        **_BIASES,
        "attn_norm.bias": "input_layernorm.bias",
        "ffn_norm.bias": "post_attention_layernorm.bias",
        "ffn_gate_inp.weight": "mlp.router.weight",
    },
    "qwen2moe": {**_BIASES, **_SHARED_WITH_GATE},
    "qwen35moe": {
        **_DELTA,
        "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
        "attn_gate.weight": "linear_attn.in_proj_z.weight",
        "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
        "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    },
    "qwen3moe": _QK_NORMS,
    "qwen3next": {
        **_DELTA,
        "attn_qkv.weight": "linear_attn.in_proj_qkvz.weight",
        "attn_gate.weight": "linear_attn.in_proj_qkvz.weight",
        "ssm_in.weight": "linear_attn.in_proj_qkvz.weight",  # files of the first months
        "ssm_ba.weight": "linear_attn.in_proj_ba.weight",
    },
}
_AROUND_OF = {"phimoe": {"output_norm.bias": "model.norm.bias", "output.bias": "lm_head.bias"}}

_REASONS = {
    "rope_freqs.weight": "its positions are stretched by a table (rope_freqs) that the engine does not read",
    "rope_factors_long.weight": "its positions are stretched by tables that do not say how attention changes",
}
_ARCH_REASONS = {"qwen3vlmoe": "models with parts for pictures are run from a folder with all their parts only"}


def transformers_name(arch: str, name: str) -> str | None:
    """The parameter a dense tensor belongs to; None: it is not known."""
    around = _AROUND | _AROUND_OF.get(arch, {})
    match = _BLOCK.fullmatch(name)
    if match is None:
        return around.get(name)
    own = {**_ATTENTION, **_LAYERS.get(arch, {})}
    found = own.get(match[2])
    return None if found is None else f"model.layers.{match[1]}.{found}"


def why_not_run(arch: str, names: Iterable[str]) -> str | None:
    """Why the engine cannot run a file of an architecture with these dense tensors, in words; None: it can."""
    if arch not in _LAYERS:
        return _ARCH_REASONS.get(arch, f"GGUF files of type {arch:.60} cannot be loaded yet")
    for name in names:
        if name in _REASONS:
            return _REASONS[name]
        if transformers_name(arch, name) is None:
            return f"what its tensor {name:.80} is for is not known"
    return None


def runnable_architectures() -> tuple[str, ...]:
    """Names as in `general.architecture`."""
    return tuple(sorted(_LAYERS))
