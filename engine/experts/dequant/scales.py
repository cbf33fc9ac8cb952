"""Scales and zero points of tiles: read once for a matrix, applied to a strip of rows in place."""

from collections.abc import Callable

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


def scale_grid(code: MatrixCode, raw: Tensor) -> Tensor:
    """Scales of all tiles, float32 [tiles down, tiles across]."""
    assert code.scale_dtype is not None
    return scale_values(raw, code.scale_dtype).view(code.grid)


def rows_of(grid: Tensor, code: MatrixCode, first: int, last: int) -> Tensor:
    """What a grid holds for the rows from `first` up to `last`: [last - first, tiles across]."""
    if code.tile[0] == 1:
        return grid[first:last]
    return grid[torch.arange(first, last, device=grid.device) // code.tile[0]]


def in_tiles(values: Tensor, numbers: Tensor, wide: int, change: Callable[[Tensor, Tensor], object]) -> None:
    """Change values [n, columns] in place by one number for `wide` neighbours: numbers [n, tiles across].

    `change` is `Tensor.mul_` or `Tensor.sub_`; the last tile may be narrower.
    """
    across = numbers.shape[1]
    if across == 1:
        change(values, numbers)
        return
    even = values.shape[1] // wide
    change(values[:, : even * wide].view(-1, even, wide), numbers[:, :even, None])
    if even < across:
        change(values[:, even * wide :], numbers[:, even:])
