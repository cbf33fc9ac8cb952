"""How the weights of a checkpoint are stored: from `quantization_config`, or from the tensors themselves."""

import re
from collections.abc import Sequence
from typing import Any

from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import CannotEstimateError
from engine.contract.families import TextConfig
from engine.contract.formats import WeightFormat

_PLAIN = {
    "float32": WeightFormat.FP32,
    "float": WeightFormat.FP32,
    "bfloat16": WeightFormat.BF16,
    "float16": WeightFormat.FP16,
    "half": WeightFormat.FP16,
}
_PLAIN_TENSORS = {"F32": WeightFormat.FP32, "BF16": WeightFormat.BF16, "F16": WeightFormat.FP16}

# .experts.7.w1.weight | .experts.gate_up_proj_blocks | .experts.fc1.weight | granite's block_sparse_moe.input_linear
_EXPERT = re.compile(
    r"\.experts\.(\d+\.|(gate_up|gate|up|down)_proj|w[123]\b|fc[12]\b)"
    r"|\.block_sparse_moe\.(input|output)_linear\."
)
# layers of the language model, not those of parts for pictures and sound
_LAYER = re.compile(r"^(?:thinker\.|model\.|language_model\.|text_model\.)*layers\.(\d+)\.")
_FIX = "Choose a model whose experts are stored in bf16 or fp32."


def is_expert_tensor(name: str) -> bool:
    """Whether a tensor belongs to the routed experts: weights, biases and scales, but not the router."""
    return _EXPERT.search(name) is not None


def layer_of(name: str) -> int | None:
    """The decoder layer of the language model that a tensor's name gives, if any."""
    match = _LAYER.search(name)
    return int(match[1]) if match else None


def plain_format_of_config(text: TextConfig) -> WeightFormat | None:
    """The type of unquantised weights (`dtype`, formerly `torch_dtype`); None where config.json does not say.

    Raises:
        CannotEstimateError: a type that is not known.
    """
    name = text.anywhere("dtype") or text.anywhere("torch_dtype")
    if name is None or name == "auto":
        return None
    known = _PLAIN.get(str(name).removeprefix("torch."))
    if known is None:
        raise CannotEstimateError(f"config.json says that weights are of type {name}, which is not known.", _FIX)
    return known


def expert_format_of_config(text: TextConfig, plain: WeightFormat) -> WeightFormat:
    """How the experts are stored according to `quantization_config`.

    Raises:
        CannotEstimateError: a method whose layout is not known.
    """
    quantised = text.anywhere("quantization_config")
    if not isinstance(quantised, dict):
        return plain
    method = str(quantised.get("quant_method", "")).lower()
    algorithm = str(quantised.get("quant_algo", "")).upper()
    block = quantised.get("weight_block_size")
    if method == "mxfp4":
        return WeightFormat.MXFP4
    if method == "fp8" and block in ([128, 128], (128, 128)):
        return WeightFormat.FP8_BLOCK
    if method.startswith("modelopt") or algorithm:
        if algorithm == "NVFP4":
            return WeightFormat.NVFP4
        method = f"{method} {algorithm}".strip()
    if method == "compressed-tensors":
        known = _compressed_tensors(quantised)
        if known is not None:
            return known
    raise _unknown(method or "a method without a name")


def _compressed_tensors(quantised: dict[str, Any]) -> WeightFormat | None:
    groups = quantised.get("config_groups")
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict) and isinstance(group.get("weights"), dict)
    ]
    layouts = {str(quantised.get("format", ""))}
    layouts |= {str(group.get("format", "")) for group in (groups or {}).values() if isinstance(group, dict)}
    if "nvfp4-pack-quantized" in layouts or any(
        (part.get("num_bits"), part.get("type"), part.get("group_size")) == (4, "float", 16) for part in weights
    ):
        return WeightFormat.NVFP4
    if "mxfp4-pack-quantized" in layouts:
        return WeightFormat.MXFP4
    if any(part.get("num_bits") == 8 and part.get("block_structure") in ([128, 128], "128x128") for part in weights):
        return WeightFormat.FP8_BLOCK
    return None


def expert_format_of_headers(tensors: Sequence[TensorEntry]) -> WeightFormat:
    """How the experts are stored according to the types and names of their tensors.

    Raises:
        CannotEstimateError: a mix of types, or a layout that is not known.
    """
    kinds = {entry.dtype for entry in tensors}
    if len(kinds) == 1 and (plain := _PLAIN_TENSORS.get(next(iter(kinds)))):
        return plain
    names = [entry.name for entry in tensors]
    if "U8" in kinds and any(name.endswith("_blocks") for name in names):
        return WeightFormat.MXFP4
    if "U8" in kinds and any(name.endswith((".weight_scale_2", ".weight_global_scale")) for name in names):
        return WeightFormat.NVFP4
    if "F8_E4M3" in kinds and any(name.endswith("weight_scale_inv") for name in names):
        return WeightFormat.FP8_BLOCK
    raise _unknown(" and ".join(sorted(kinds)) or "no tensors at all")


def _unknown(what: str) -> CannotEstimateError:
    return CannotEstimateError(
        f"The routed experts are stored as {what}; their size in memory is not known.", _FIX, stored_as=what
    )
