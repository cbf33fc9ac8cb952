"""NVFP4 and MXFP4: two E2M1 numbers in a byte, the earlier one in the low half; a scale for 16 or 32 of them.

Sources: OCP Microscaling Formats v1.0, 5.3.3 (E2M1) and 6.3 (MXFP4); NVFP4 multiplies the fp8 scale of 16 weights with
one fp32 scale for the matrix ("weight_scale_2" of modelopt), or divides by it ("weight_global_scale" of
compressed-tensors, `dequantize` there: scale / global_scale first).
"""

import torch
from torch import Tensor

from engine.experts.dequant.code import MatrixCode, Pieces, Rows
from engine.experts.dequant.scales import in_tiles, rows_of, scale_grid
from engine.experts.dequant.tables import look_up, nibble_table

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1 = (*_E2M1, *(-value for value in _E2M1))


def fp4_rows(code: MatrixCode, pieces: Pieces) -> Rows:
    """Weight times scale in float32."""
    packed = pieces.weight.view(code.rows, code.columns // 2)
    table = nibble_table(("E2M1",), packed.device, lambda: torch.tensor(E2M1))
    assert pieces.scale is not None
    scales = scale_grid(code, pieces.scale)
    if pieces.whole is not None:
        scales = scales / pieces.whole if code.divides else scales * pieces.whole

    def rows(first: int, last: int) -> Tensor:
        values = look_up(table, packed[first:last].reshape(-1).int()).view(last - first, code.columns)
        in_tiles(values, rows_of(scales, code, first, last), code.tile[1], Tensor.mul_)
        return values

    return rows
