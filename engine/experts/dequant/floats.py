"""Weights of 8 bits or more: plain numbers, and fp8 with a scale for tiles, rows, groups, or the whole matrix.

fp8 numbers are those of OCP 8-bit Floating Point v1.0 (E4M3 without infinities, E5M2), as torch reads them.
"""

import torch
from torch import Tensor

from engine.experts.dequant.code import NUMBER_TYPES, MatrixCode, Pieces
from engine.experts.dequant.scales import scale_rows, spread


def plain_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """Numbers as they are stored, in float32."""
    return pieces.weight.view(NUMBER_TYPES[code.dtype]).view(code.rows, code.columns)[first:last].float()


def fp8_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """Weight times scale in float32; "weight_scale_inv" of published checkpoints is such a factor too."""
    stored = pieces.weight.view(code.rows, code.columns)[first:last]
    values = e4m3_values(stored) if code.dtype == "F8_E4M3" else plain_rows(code, pieces, first, last)
    if pieces.scale is not None:
        values = values * spread(scale_rows(code, pieces.scale, first, last), code)
    if pieces.whole is not None:
        values = values * pieces.whole
    return values


def e4m3_values(raw: Tensor) -> Tensor:
    """E4M3 numbers (uint8) as float32: shifted to where float16 has exponent and mantissa they are 2^8 too small.

    Several times as fast as torch's own conversion, which goes number by number.
    """
    bits = raw.to(torch.int16)
    digits = bits & 0x7F
    not_a_number = ((digits + 1) & 0x80) << 7  # of 0x7F alone: fills the exponent
    halves = (digits << 7) | ((bits & 0x80) << 8) | not_a_number
    return halves.view(torch.float16).float() * 256
