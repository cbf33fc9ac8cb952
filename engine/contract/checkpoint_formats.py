"""How the weights of a checkpoint are stored according to config.json (`dtype`, `quantization_config`)."""

from collections.abc import Mapping
from typing import Any

from engine.contract.checkpoint_experts import FORMAT_FIX
from engine.contract.errors import CannotEstimateError
from engine.contract.families import TextConfig
from engine.contract.formats import MatrixStorage, WeightFormat, int_groups, usual_storage

_PLAIN = {
    "float32": WeightFormat.FP32,
    "float": WeightFormat.FP32,
    "bfloat16": WeightFormat.BF16,
    "float16": WeightFormat.FP16,
    "half": WeightFormat.FP16,
}
_INTS = {8: WeightFormat.INT8, 4: WeightFormat.INT4, 3: WeightFormat.INT3, 2: WeightFormat.INT2}
_MOST_GROUP = 1 << 20


def plain_format_of_config(text: TextConfig) -> WeightFormat | None:
    """The type of unquantised weights (`dtype`, formerly `torch_dtype`); None where config.json does not say.

    Raises:
        CannotEstimateError: a type that is not known.
    """
    name = text.anywhere("dtype") or text.anywhere("torch_dtype")
    if name is None or name == "auto":
        return None
    known = _PLAIN.get(f"{name!s:.40}".removeprefix("torch."))
    if known is None:
        raise CannotEstimateError(
            f"config.json says that weights are of type {name!s:.40}, which is not known.", FORMAT_FIX
        )
    return known


def expert_storage_of_config(text: TextConfig, plain: WeightFormat, assumptions: list[str]) -> MatrixStorage:
    """How the experts are stored according to `quantization_config`; what it leaves open goes to `assumptions`.

    Raises:
        CannotEstimateError: a method whose layout is not known.
    """
    quantised = text.anywhere("quantization_config")
    if quantised is None:
        return usual_storage(plain)
    if not isinstance(quantised, dict):
        raise _unknown(f"{quantised!r:.60}")
    method = f"{quantised.get('quant_method', '')!s:.40}".lower()
    algorithm = f"{quantised.get('quant_algo', '')!s:.40}".upper()
    known: MatrixStorage | None = None
    match method:
        case "mxfp4":
            known = usual_storage(WeightFormat.MXFP4)
        case "fp8" if (quantised.get("expert_dtype") or text.anywhere("expert_dtype")) == "fp4":
            known = usual_storage(WeightFormat.MXFP4)  # DeepSeek V4: experts in 4 bits, the rest in fp8
        case "fp8":
            known = _fp8(quantised, assumptions)
        case "fbgemm_fp8":
            known = usual_storage(WeightFormat.FP8_CHANNEL)
        case "gptq" | "awq":
            known = _int_groups(method, quantised)
        case "compressed-tensors":
            known = _compressed_tensors(quantised)
        case _ if method.startswith("modelopt") or algorithm:
            method = f"{method} {algorithm}".strip()
            known = _MODELOPT.get(algorithm)
    if known is None:
        raise _unknown(method or "a method without a name")
    return known


def packed_bits_of_config(text: TextConfig) -> int:
    """Bits of a whole number in packed int32 words, for matrices whose tensors alone do not tell; 4 if unknown."""
    quantised = text.anywhere("quantization_config")
    if not isinstance(quantised, dict):
        return 4
    groups = quantised.get("config_groups")
    listed = list(groups.values()) if isinstance(groups, dict) else []
    weights = [
        group["weights"] for group in listed if isinstance(group, dict) and isinstance(group.get("weights"), dict)
    ]
    found = [quantised.get("bits"), quantised.get("w_bit"), *(part.get("num_bits") for part in weights)]
    return next((int(bits) for bits in found if _count(bits) in _INTS), 4)


_MODELOPT = {
    "NVFP4": usual_storage(WeightFormat.NVFP4),
    "FP8": usual_storage(WeightFormat.FP8),
    "MXFP8": usual_storage(WeightFormat.MXFP8),
    "MXFP4": usual_storage(WeightFormat.MXFP4),
}


def _fp8(quantised: Mapping[str, Any], assumptions: list[str]) -> MatrixStorage | None:
    """Tiles of `weight_block_size`; an explicit null means one scale a matrix."""
    if "weight_block_size" in quantised and quantised["weight_block_size"] is None:
        return usual_storage(WeightFormat.FP8)
    block = quantised.get("weight_block_size", [128, 128])
    if not (isinstance(block, list) and len(block) == 2 and all(_count(size) for size in block)):
        return None
    if "weight_block_size" not in quantised:
        assumptions.append("config.json names no block size for fp8 weights; 128 × 128 taken")
    tiles = {"tile_rows": block[0], "tile_columns": block[1]}
    return usual_storage(WeightFormat.FP8_BLOCK).model_copy(update=tiles)


def _int_groups(method: str, quantised: Mapping[str, Any]) -> MatrixStorage | None:
    """GPTQ always stores zero points and the group of each column; AWQ has zero points unless told otherwise."""
    weight_format = _ints(quantised.get("bits", quantised.get("w_bit")))
    group = quantised.get("group_size", quantised.get("q_group_size"))
    if weight_format is None or not (group == -1 or _count(group)):
        return None
    zeros = method == "gptq" or quantised.get("zero_point", True) is not False
    order_bytes = 4 if method == "gptq" else 0
    return int_groups(weight_format, 0 if group == -1 else group, zeros=zeros, order_bytes=order_bytes)


def _compressed_tensors(quantised: Mapping[str, Any]) -> MatrixStorage | None:
    """The first group of `config_groups` that says how weights are stored."""
    groups = quantised.get("config_groups")
    listed = [group for group in groups.values() if isinstance(group, dict)] if isinstance(groups, dict) else []
    layouts = {f"{part.get('format', '')!s:.40}" for part in (quantised, *listed)}
    if "nvfp4-pack-quantized" in layouts:
        return usual_storage(WeightFormat.NVFP4)
    if "mxfp4-pack-quantized" in layouts:
        return usual_storage(WeightFormat.MXFP4)
    weights: dict[str, Any] = next((group["weights"] for group in listed if isinstance(group.get("weights"), dict)), {})
    bits, kind, group = weights.get("num_bits"), weights.get("type", "int"), weights.get("group_size")
    strategy = weights.get("strategy") or ("group" if _count(group) else "tensor")
    if kind == "float":
        return _compressed_float(bits, strategy, group, weights.get("block_structure"))
    weight_format = _ints(bits)
    if weight_format is None or strategy not in ("group", "channel") or (strategy == "group" and not _count(group)):
        return None
    columns = _count(group) if strategy == "group" else 0
    zeros = weights.get("symmetric", True) is False
    order_bytes = 4 if weights.get("actorder") in ("group", True) else 0
    if "int-quantized" in layouts or "naive-quantized" in layouts:  # int8 as it is, not packed in words
        if weight_format is not WeightFormat.INT8:
            return None
        return MatrixStorage(
            format=weight_format, block_bytes=1, tile_columns=columns, scale_bytes=2, zero_bits=8 if zeros else 0
        )
    return int_groups(weight_format, columns, zeros=zeros, order_bytes=order_bytes)


def _compressed_float(bits: object, strategy: object, group: object, block: object) -> MatrixStorage | None:
    if bits == 4:
        return {16: usual_storage(WeightFormat.NVFP4), 32: usual_storage(WeightFormat.MXFP4)}.get(_count(group))
    if bits != 8:
        return None
    if block in ([128, 128], "128x128"):
        return usual_storage(WeightFormat.FP8_BLOCK)
    two_bytes = {"scale_bytes": 2}  # scales have the model's own type
    match strategy:
        case "tensor":
            return usual_storage(WeightFormat.FP8)
        case "channel":
            return usual_storage(WeightFormat.FP8_CHANNEL).model_copy(update=two_bytes)
        case _:
            return None


def _ints(bits: object) -> WeightFormat | None:
    return _INTS.get(_count(bits))


def _count(value: object) -> int:
    """The value if it is a sensible whole number above zero, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_GROUP else 0


def _unknown(what: str) -> CannotEstimateError:
    return CannotEstimateError(
        f"The routed experts are stored as {what}; their size in memory is not known.", FORMAT_FIX, stored_as=what
    )
