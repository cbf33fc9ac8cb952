"""Weights of 8 bits or more: plain numbers, and fp8 with a scale for tiles, rows, groups, or the whole matrix.

fp8 numbers are those of OCP 8-bit Floating Point v1.0 (E4M3 without infinities, E5M2), as torch reads them.
"""

import torch
from torch import Tensor

from engine.experts.dequant.code import NUMBER_TYPES, MatrixCode, Pieces, Rows
from engine.experts.dequant.scales import in_tiles, rows_of, scale_grid
from engine.experts.dequant.tables import kept_table, look_up


def plain_rows(code: MatrixCode, pieces: Pieces) -> Rows:
    """Numbers as they are stored, in float32."""
    values = pieces.weight.view(NUMBER_TYPES[code.dtype]).view(code.rows, code.columns)
    return lambda first, last: values[first:last].float()


def fp8_rows(code: MatrixCode, pieces: Pieces) -> Rows:
    """Weight times scale in float32; "weight_scale_inv" of published checkpoints is such a factor too."""
    stored = pieces.weight.view(code.rows, code.columns)
    scales = None if pieces.scale is None else scale_grid(code, pieces.scale)

    def rows(first: int, last: int) -> Tensor:
        values = fp8_values(stored[first:last], code.dtype)
        if scales is not None:
            in_tiles(values, rows_of(scales, code, first, last), code.tile[1], Tensor.mul_)
        return values if pieces.whole is None else values.mul_(pieces.whole)

    return rows


def e4m3_values(raw: Tensor) -> Tensor:
    """E4M3 numbers (uint8) as float32."""
    return fp8_values(raw, "F8_E4M3")


def fp8_values(raw: Tensor, dtype: str) -> Tensor:
    """Numbers of 8 bits (uint8 of any shape) as float32, two at a time: torch's own conversion goes bit by bit."""
    flat = raw.reshape(-1)
    if flat.numel() % 2 or flat.storage_offset() % 2:
        return look_up(kept_table((dtype, 1), raw.device, lambda: _numbers(dtype)), flat.int()).view(raw.shape)
    pairs = kept_table((dtype, 2), raw.device, lambda: _pairs(dtype))
    return look_up(pairs, flat.view(torch.uint16).int()).view(raw.shape)


def _numbers(dtype: str) -> Tensor:
    return torch.arange(256).to(torch.uint8).view(NUMBER_TYPES[dtype]).float()[:, None]


def _pairs(dtype: str) -> Tensor:
    """Both numbers of each 16 bits, the one in the lower byte first: float32 [65536, 2]."""
    numbers = _numbers(dtype)[:, 0]
    return torch.stack([numbers.repeat(256), numbers.repeat_interleave(256)], dim=1)
