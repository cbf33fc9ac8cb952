"""NVFP4 and MXFP4: two E2M1 numbers in a byte, the earlier one in the low half; a scale for 16 or 32 of them.

Sources: OCP Microscaling Formats v1.0, 5.3.3 (E2M1) and 6.3 (MXFP4); NVFP4 multiplies the fp8 scale of 16 weights with
one fp32 scale for the matrix ("weight_scale_2" of modelopt), or divides by it ("weight_global_scale" of
compressed-tensors, `dequantize` there: scale / global_scale first).
"""

import torch
from torch import Tensor

from engine.experts.dequant.code import MatrixCode, Pieces
from engine.experts.dequant.scales import scale_rows

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1 = (*_E2M1, *(-value for value in _E2M1))
_tables: dict[torch.device, Tensor] = {}


def fp4_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """Weight times scale in float32."""
    packed = pieces.weight.view(code.rows, code.columns // 2)[first:last]
    values = byte_table(packed.device).index_select(0, packed.reshape(-1).int())
    assert pieces.scale is not None
    scales = scale_rows(code, pieces.scale, first, last)
    if pieces.whole is not None:
        scales = scales / pieces.whole if code.divides else scales * pieces.whole
    return (values.view(last - first, scales.shape[1], -1) * scales[:, :, None]).view(last - first, code.columns)


def byte_table(device: torch.device) -> Tensor:
    """Both numbers of each of the 256 bytes, float32 [256, 2]."""
    table = _tables.get(device)
    if table is None:
        numbers = torch.tensor(E2M1)
        table = torch.stack([numbers.repeat(16), numbers.repeat_interleave(16)], dim=1).to(device)
        _tables[device] = table
    return table
