"""Scales of tiles: read, and spread over the weights they belong to."""

import torch
from torch import Tensor

from engine.experts.dequant.code import NUMBER_TYPES, MatrixCode

_SMALLEST_BITS = 1 << 22  # of 2^-127, which float32 holds as a denormal number
_EXPONENTS = frozenset({"U8", "F8_E8M0"})  # powers of two, 127 stands for 1: OCP Microscaling Formats v1.0, 5.4.1


def scale_values(raw: Tensor, dtype: str) -> Tensor:
    """Stored scales (uint8 [n]) as float32."""
    if dtype in _EXPONENTS:
        bits = raw.to(torch.int32)
        return torch.where(bits == 0, _SMALLEST_BITS, bits << 23).view(torch.float32)
    return raw.view(NUMBER_TYPES[dtype]).float()


def scale_rows(code: MatrixCode, raw: Tensor, first: int, last: int) -> Tensor:
    """Scales of the rows from `first` up to `last`, float32 [last - first, tiles across]."""
    assert code.scale_dtype is not None
    grid = scale_values(raw, code.scale_dtype).view(code.grid)
    if code.tile[0] == 1:
        return grid[first:last]
    return grid[torch.arange(first, last, device=raw.device) // code.tile[0]]


def spread(scales: Tensor, code: MatrixCode) -> Tensor:
    """Repeat each scale over the columns of its tile: [n, tiles across] to [n, columns]."""
    if scales.shape[1] == 1:
        return scales
    down, across = scales.shape
    return scales[:, :, None].expand(down, across, code.tile[1]).reshape(down, -1)[:, : code.columns]
