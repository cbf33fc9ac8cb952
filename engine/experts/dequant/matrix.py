"""Any stored matrix into numbers, a strip of rows at a time so that what is in between stays small."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from engine.contract.estimate_work import UNPACK_STRIP_VALUES
from engine.experts.dequant.code import Kind, MatrixCode, Pieces, Rows
from engine.experts.dequant.floats import fp8_rows, plain_rows
from engine.experts.dequant.fp4 import fp4_rows
from engine.experts.dequant.gguf import gguf_rows
from engine.experts.dequant.ints import awq_rows, gptq_rows, int8_rows, packed_rows

_ROWS: dict[Kind, Callable[[MatrixCode, Pieces], Rows]] = {
    "plain": plain_rows,
    "fp8": fp8_rows,
    "fp4": fp4_rows,
    "int8": int8_rows,
    "packed": packed_rows,
    "gptq": gptq_rows,
    "awq": awq_rows,
    "gguf": lambda code, pieces: partial(gguf_rows, code, pieces),
}
_CPU_STRIP_VALUES = 1 << 19  # 2 MiB of float32: near the caches, and large enough for all threads


def dequantise(code: MatrixCode, pieces: Pieces, out: Tensor) -> None:
    """Write the weights into `out` [rows, columns] of any float type; computed in float32, rounded once."""
    strip = _CPU_STRIP_VALUES if out.device.type == "cpu" else UNPACK_STRIP_VALUES
    step = max(strip // code.columns, 1)
    rows = _ROWS[code.kind](code, pieces)
    for first in range(0, code.rows, step):
        last = min(first + step, code.rows)
        out[first:last] = rows(first, last)
