"""From the metadata of a GGUF file to the configuration the family rules read.

Keys are those of docs/gguf.md of ggml; which key of config.json each comes from is what llama.cpp's conversion script
says. Architectures whose metadata leaves a fact about the KV cache open are not in the table.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from engine.contract.errors import CannotEstimateError, UnsupportedModelError
from engine.contract.gguf_headers import GgufModel, Value

_FIX = "Choose this model as a folder with config.json and safetensors files."

_KEYS = {
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "moe_intermediate_size": "expert_feed_forward_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "max_position_embeddings": "context_length",
    "first_k_dense_replace": "leading_dense_block_count",
    "n_shared_experts": "expert_shared_count",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "sliding_window": "attention.sliding_window",
}
_SIGMOID = 2  # of expert_gating_func
_OLD_ROPE = "rope.dimension_count"  # the head size in files that are older than attention.key_length


class GgufFacts:
    """Typed reads of the metadata of one architecture."""

    def __init__(self, model: GgufModel, arch: str) -> None:
        self._metadata = model.metadata
        self._tensors = model.tensors
        self.arch = arch

    def given(self, key: str) -> Value:
        """The raw value, None where it is missing."""
        return self._metadata.get(f"{self.arch}.{key}")

    def has(self, tensor: str) -> bool:
        """Whether any layer has a tensor, such as "attn_q.bias"."""
        return any(name.startswith("blk.") and name.endswith(f".{tensor}") for name in self._tensors)

    def has_around(self, tensor: str) -> bool:
        """Whether there is such a tensor outside of the layers."""
        return tensor in self._tensors

    def real(self, key: str) -> float | None:
        """A finite number, whole or not."""
        value = self.given(key)
        usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if usable else None  # type: ignore[arg-type]

    def flag(self, key: str, *, otherwise: bool) -> bool:
        """Yes or no; `otherwise` where the file does not say."""
        value = self.given(key)
        return value if isinstance(value, bool) else otherwise

    def number(self, key: str) -> int | None:
        """A whole number; a list with a value for each layer must have one value throughout.

        Raises:
            CannotEstimateError: the layers differ.
        """
        value = self.given(key)
        if isinstance(value, tuple):
            if len(set(value)) != 1:
                raise CannotEstimateError(
                    f"The GGUF file gives layers their own {key}; this is not known for {self.arch} files.",
                    _FIX,
                    fact=f"{self.arch}.{key}",
                )
            value = value[0]
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def required(self, key: str) -> int:
        """A whole number that must be there.

        Raises:
            CannotEstimateError: it is not; the error names it.
        """
        value = self.number(key)
        if value is None:
            raise CannotEstimateError(
                f"The GGUF file does not say {self.arch}.{key}; no memory figure without it.",
                _FIX,
                fact=f"{self.arch}.{key}",
            )
        return value


def gguf_config(model: GgufModel) -> dict[str, Any]:
    """A configuration with the keys of config.json.

    Raises:
        CannotEstimateError: a fact is missing, or the architecture is not in the table.
        UnsupportedModelError: not a Mixture-of-Experts model.
    """
    arch = model.metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise CannotEstimateError(
            "The GGUF file does not say general.architecture; no memory figure without it.",
            _FIX,
            fact="general.architecture",
        )
    facts = GgufFacts(model, arch)
    if not facts.number("expert_count"):
        raise UnsupportedModelError(
            f"This {arch:.60} model is not a Mixture-of-Experts model: the GGUF file names no routed experts.",
            "Choose a Mixture-of-Experts model.",
            model_type=arch,
        )
    special = _ARCHITECTURES.get(arch)
    if special is None:
        raise CannotEstimateError(
            f"How {arch:.60} models keep keys and values is not known from a GGUF file.",
            f"{_FIX} GGUF files of these types can be read: {', '.join(sorted(_ARCHITECTURES))}.",
            model_type=arch,
        )
    values = {name: number for name, key in _KEYS.items() if (number := facts.number(key)) is not None}
    ahead = facts.number("nextn_predict_layers") or 0  # layers that only guess ahead
    embedding = model.tensors.get("token_embd.weight")
    if embedding is not None and len(embedding.shape) == 2:
        values["vocab_size"] = embedding.shape[1]
    if "head_dim" not in values and (size := facts.number(_OLD_ROPE)) is not None:
        values["head_dim"] = size
    config: dict[str, Any] = {
        "num_hidden_layers": facts.required("block_count") - ahead,
        **values,
        "tie_word_embeddings": "output.weight" not in model.tensors,
    }
    return {**config, **special(facts, config)}


_Special = Callable[[GgufFacts, Mapping[str, Any]], Mapping[str, Any]]


def _plain(model_type: str, *, inner_is_plain: bool = False) -> _Special:
    """A family with ordinary attention; `inner_is_plain`: its width of an expert is `intermediate_size`."""

    def special(facts: GgufFacts, config: Mapping[str, Any]) -> Mapping[str, Any]:
        value_length = facts.number("attention.value_length")
        if value_length is not None and value_length != config.get("head_dim"):
            raise CannotEstimateError(
                f"The GGUF file gives values another head size than keys ({value_length}); this is not known for"
                f" {facts.arch} files.",
                _FIX,
                fact=f"{facts.arch}.attention.value_length",
            )
        inner = config.get("moe_intermediate_size")
        plain = {"intermediate_size": inner} if inner_is_plain and inner is not None else {}
        return {"model_type": model_type, **plain}

    return special


def _ernie(facts: GgufFacts, config: Mapping[str, Any]) -> Mapping[str, Any]:
    first = config.get("first_k_dense_replace", 0)
    return {
        **_plain("ernie4_5_moe")(facts, config),
        "moe_layer_start_index": first,
        "moe_layer_interval": facts.number("interleave_moe_layer_step") or 1,
    }


def _granite(facts: GgufFacts, config: Mapping[str, Any]) -> Mapping[str, Any]:
    shared = facts.number("expert_shared_feed_forward_length")
    if not shared:
        return _plain("granitemoe", inner_is_plain=True)(facts, config)
    return {**_plain("granitemoeshared", inner_is_plain=True)(facts, config), "shared_intermediate_size": shared}


def _latent(facts: GgufFacts, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """DeepSeek V2 and V3 and their relatives. Files of 2025 and later give the sizes of a head in *_mla keys.

    V3 and what came after it scores experts one by one (gating function 2) and corrects the scores before the choice.
    """
    rope = facts.required(_OLD_ROPE)
    newer = facts.number("expert_gating_func") == _SIGMOID or facts.has("exp_probs_b.bias")
    key_length = facts.number("attention.key_length_mla") or facts.required("attention.key_length")
    return {
        "model_type": "deepseek_v3" if newer else "deepseek_v2",
        "num_key_value_heads": config.get("num_attention_heads"),
        "kv_lora_rank": facts.required("attention.kv_lora_rank"),
        "q_lora_rank": facts.number("attention.q_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key_length - rope,
        "v_head_dim": facts.number("attention.value_length_mla") or facts.required("attention.value_length"),
        "head_dim": None,
    }


def _delta(model_type: str) -> _Special:
    """Qwen models with gated delta nets between the layers with full attention."""

    def special(facts: GgufFacts, config: Mapping[str, Any]) -> Mapping[str, Any]:
        value_heads = facts.required("ssm.time_step_rank")
        inner = facts.required("ssm.inner_size")
        return {
            "model_type": model_type,
            "full_attention_interval": facts.number("full_attention_interval") or 4,
            "linear_conv_kernel_dim": facts.required("ssm.conv_kernel"),
            "linear_key_head_dim": facts.required("ssm.state_size"),
            "linear_num_key_heads": facts.required("ssm.group_count"),
            "linear_num_value_heads": value_heads,
            "linear_value_head_dim": inner // value_heads if value_heads else inner,
        }

    return special


_ARCHITECTURES: dict[str, _Special] = {
    "deepseek2": _latent,
    "dots1": _plain("dots1"),
    "ernie4_5-moe": _ernie,
    "glm4moe": _plain("glm4_moe"),
    "gpt-oss": _plain("gpt_oss", inner_is_plain=True),
    "granitemoe": _granite,
    "hunyuan-moe": _plain("hunyuan_v1_moe", inner_is_plain=True),
    "llama": _plain("mixtral", inner_is_plain=True),
    "minimax-m2": _plain("minimax_m2", inner_is_plain=True),
    "olmoe": _plain("olmoe", inner_is_plain=True),
    "phimoe": _plain("phimoe", inner_is_plain=True),
    "qwen2moe": _plain("qwen2_moe"),
    "qwen35moe": _delta("qwen3_5_moe_text"),
    "qwen3moe": _plain("qwen3_moe"),
    "qwen3next": _delta("qwen3_next"),
    "qwen3vlmoe": _plain("qwen3_vl_moe_text"),
}
