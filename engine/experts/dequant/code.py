"""How the stored bytes of one matrix are to be read, found out from the tensors of the checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from engine.contract.checkpoint_packed import PackedTensor
from engine.contract.errors import UnsupportedModelError

Kind = Literal["plain", "fp8", "fp4", "int8", "packed", "gptq", "awq", "gguf"]
Rows = Callable[[int, int], Tensor]  # weights from a first row up to a last one, float32 [last - first, columns]

NUMBER_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
_PLAIN = frozenset({"F32", "BF16", "F16"})
_SCALES = frozenset({"F32", "BF16", "F16", "F8_E4M3", "U8", "F8_E8M0"})
_FLOAT_8 = frozenset({"F8_E4M3", "F8_E5M2"})
_WHOLE_BITS = (2, 3, 4, 8)
_TILES = (128, 16, 32, 64, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class MatrixCode:
    """One stored matrix [rows, columns]; outputs are rows, whatever the order of its bytes."""

    kind: Kind
    rows: int
    columns: int
    dtype: str  # of the weights, in the words of the file
    scale_dtype: str | None = None
    tile: tuple[int, int] = (1, 1)  # rows and columns that share a scale
    bits: int = 0
    zero_step: int = 0  # what is added to a stored zero point
    divides: bool = False  # the scale of the whole matrix is a divisor

    @property
    def grid(self) -> tuple[int, int]:
        """Scales down and across."""
        return -(-self.rows // self.tile[0]), -(-self.columns // self.tile[1])


@dataclass(slots=True)
class Pieces:
    """The bytes of one matrix (uint8 [n]) and its scale for the whole (float32 [])."""

    weight: Tensor
    scale: Tensor | None = None
    zero: Tensor | None = None
    order: Tensor | None = None
    whole: Tensor | None = None


def code_of(
    tensor: PackedTensor,
    rows: int,
    columns: int,
    *,
    matrices: int = 1,
    scale_in_record: bool = True,
    quantised: Mapping[str, Any] | None = None,
) -> MatrixCode:
    """How to read a packed matrix.

    Args:
        matrices: how many of them lie in the tensor.
        scale_in_record: whether scales lie beside the weights; False: there is only one for the whole matrix.
        quantised: `quantization_config` of config.json.

    Raises:
        UnsupportedModelError: a layout the engine does not compute.
    """
    weight, scale = tensor.weight, tensor.scale if scale_in_record else None
    if scale is not None and scale.dtype not in _SCALES:
        raise unreadable(tensor)
    if tensor.column_major:
        return _column_major(tensor, rows, columns, quantised or {})
    scale_dtype = None if scale is None else scale.dtype
    tile = (rows, columns) if scale is None else _tile(tensor, rows, columns, scale.values // matrices)
    values = rows * columns * matrices
    if weight.dtype in _PLAIN and scale is None and weight.values == values:
        return MatrixCode("plain", rows, columns, weight.dtype)
    if weight.dtype in _FLOAT_8 and weight.values == values:
        return MatrixCode("fp8", rows, columns, weight.dtype, scale_dtype, tile)
    if weight.dtype == "I32" and scale is not None:
        bits = 8 * weight.nbytes // values
        if bits in _WHOLE_BITS and 8 * weight.nbytes == bits * values:
            return MatrixCode("packed", rows, columns, weight.dtype, scale_dtype, tile, bits)
    if weight.dtype in ("U8", "I8", "F4") and scale is not None and weight.nbytes * 2 == values:
        divides = tensor.whole is not None and tensor.whole.name.endswith("global_scale")
        return MatrixCode("fp4", rows, columns, weight.dtype, scale_dtype, tile, divides=divides)
    if weight.dtype == "I8" and scale is not None and weight.values == values:
        return MatrixCode("int8", rows, columns, weight.dtype, scale_dtype, tile, 8)
    raise unreadable(tensor)


def _tile(tensor: PackedTensor, rows: int, columns: int, scales: int) -> tuple[int, int]:
    """Rows and columns that share a scale, from how many scales there are."""
    shape = () if tensor.scale is None else tensor.scale.shape
    down, across = (shape[-2], shape[-1]) if len(shape) > 1 else (scales, 1)
    if scales == 1:
        return rows, columns
    if down * across != scales:  # [E, rows] or the like
        down, across = scales, 1
    for tall in (1, rows, *_TILES):
        for wide in (columns, *_TILES):
            if (-(-rows // tall), -(-columns // wide)) == (down, across):
                return tall, wide
    raise unreadable(tensor)


def _column_major(tensor: PackedTensor, rows: int, columns: int, quantised: Mapping[str, Any]) -> MatrixCode:
    """GPTQ [columns · bits / 32, rows], or AWQ [columns, rows · bits / 32]; both with scales [groups, rows].

    GPTQ stores zero points less one, unless `checkpoint_format` is gptq_v2.
    """
    weight, scale = tensor.weight, tensor.scale
    if weight.dtype != "I32" or len(weight.shape) != 2 or scale is None or len(scale.shape) != 2:
        raise unreadable(tensor)
    bits = 8 * weight.nbytes // (rows * columns)
    groups = scale.shape[0]
    if bits not in _WHOLE_BITS or scale.shape[1] != rows or not groups:
        raise unreadable(tensor)
    tile = (1, -(-columns // groups))
    if weight.shape == (columns * bits // 32, rows):
        step = 0 if quantised.get("checkpoint_format") == "gptq_v2" else 1
        return MatrixCode("gptq", rows, columns, "I32", scale.dtype, tile, bits, zero_step=step)
    if weight.shape == (columns, rows * bits // 32) and bits == 4:
        return MatrixCode("awq", rows, columns, "I32", scale.dtype, tile, bits)
    raise unreadable(tensor)


def unreadable(tensor: PackedTensor) -> UnsupportedModelError:
    """The error for a layout that can be counted but not computed."""
    shape = " × ".join(map(str, tensor.weight.shape))
    return UnsupportedModelError(
        f"Tensor {tensor.weight.name:.120} ({tensor.weight.dtype}, {shape}) is packed in a way the engine cannot"
        " compute.",
        "Choose a copy of this model in bf16, fp8, NVFP4, MXFP4, GPTQ or AWQ.",
        tensor=tensor.weight.name,
    )
