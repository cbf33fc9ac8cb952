"""Whole numbers of 2 to 8 bits with a scale and a zero point for a group of columns.

Layouts: "packed" is pack-quantized of compressed-tensors: numbers along the rows in int32 words, lowest bits first,
each plus half its range; zero points the same way, but along the outputs. GPTQ packs along the inputs (numbers of 3
bits cross words), zero points along the outputs. AWQ packs both along the outputs, eight in the order of `_AWQ`.
Sources: `unpack_from_int32` of compressed-tensors; `dequantize_weight` of AutoGPTQ's and GPTQModel's torch kernels;
`dequantize_gemm` of AutoAWQ.

Words become a row of bytes for each output first, the same for all layouts: that moves eight numbers at a time.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.experts.dequant.code import MatrixCode, Pieces, Rows
from engine.experts.dequant.scales import in_tiles, rows_of, scale_grid, scale_values
from engine.experts.dequant.tables import int_values

_AWQ = (0, 4, 1, 5, 2, 6, 3, 7)  # where in a word the first, second, ... of eight neighbours lies


def int8_rows(code: MatrixCode, pieces: Pieces) -> Rows:
    """Bytes as they are: (number - zero point) · scale."""
    stored = pieces.weight.view(torch.int8).view(code.rows, code.columns)
    assert pieces.scale is not None
    scales = scale_grid(code, pieces.scale)
    zeros = None
    if pieces.zero is not None:
        zeros = pieces.zero.view(torch.int8)[: code.grid[0] * code.grid[1]].view(code.grid).float()

    def rows(first: int, last: int) -> Tensor:
        values = stored[first:last].float()
        if zeros is not None:
            in_tiles(values, rows_of(zeros, code, first, last), code.tile[1], Tensor.sub_)
        in_tiles(values, rows_of(scales, code, first, last), code.tile[1], Tensor.mul_)
        return values

    return rows


def packed_rows(code: MatrixCode, pieces: Pieces) -> Rows:
    """compressed-tensors: (number - zero point) · scale, both less half the range."""
    stored = pieces.weight.view(code.rows, -1)
    assert pieces.scale is not None
    scales, zeros, less = scale_grid(code, pieces.scale), None, 1 << (code.bits - 1)
    if pieces.zero is not None:
        words = pieces.zero.view(torch.int32).view(-1, code.grid[1])
        zeros, less = int_values(_bytes_of_columns(words), code.bits).T[: code.grid[0]], 0

    def rows(first: int, last: int) -> Tensor:
        values = int_values(stored[first:last], code.bits, less=less)[:, : code.columns]
        if zeros is not None:
            in_tiles(values, rows_of(zeros, code, first, last), code.tile[1], Tensor.sub_)
        in_tiles(values, rows_of(scales, code, first, last), code.tile[1], Tensor.mul_)
        return values

    return rows


def gptq_rows(code: MatrixCode, pieces: Pieces) -> Rows:
    """GPTQ: (number - zero point) · scale, by the group of each column."""
    words = pieces.weight.view(torch.int32).view(-1, code.rows)
    zeros, less = None, 1 << (code.bits - 1)
    if pieces.zero is not None:
        stored = pieces.zero.view(code.grid[1], -1)
        zeros, less = int_values(stored, code.bits, add=code.zero_step)[:, : code.rows], 0
    groups = _Groups(code, pieces, zeros)

    def rows(first: int, last: int) -> Tensor:
        values = int_values(_bytes_of_columns(words[:, first:last]), code.bits, less=less)[:, : code.columns]
        return groups.apply(values, first, last)

    return rows


def awq_rows(code: MatrixCode, pieces: Pieces) -> Rows:
    """AWQ: (number - zero point) · scale."""
    words = pieces.weight.view(torch.int32).view(code.columns, code.rows // 8)
    zeros = None
    if pieces.zero is not None:
        stored = pieces.zero.view(torch.int32).view(code.grid[1], code.rows // 8)
        zeros = _awq_values(stored, 0).T
    less = 1 << (code.bits - 1) if zeros is None else 0
    groups = _Groups(code, pieces, zeros)

    def rows(first: int, last: int) -> Tensor:
        start, end = first // 8, -(-last // 8)
        values = _awq_values(words[:, start:end], less)[first - 8 * start : last - 8 * start]
        return groups.apply(values, first, last)

    return rows


def _awq_values(words: Tensor, less: int) -> Tensor:
    """Words of eight neighbours of a column [columns, n] to float32 [8 · n, columns]."""
    by_row = words.T.contiguous()
    values = torch.empty(by_row.shape[0], 8, by_row.shape[1], device=words.device)
    for neighbour, place in enumerate(_AWQ):
        values[:, neighbour] = (by_row >> (4 * place)) & 15
    values = values.view(-1, by_row.shape[1])
    return values.sub_(less) if less else values


class _Groups:
    """Scales and zero points that lie [groups, outputs], as GPTQ and AWQ have them."""

    def __init__(self, code: MatrixCode, pieces: Pieces, zeros: Tensor | None) -> None:
        assert pieces.scale is not None and code.scale_dtype is not None
        self._wide = code.tile[1]
        self._scales = scale_values(pieces.scale, code.scale_dtype).view(code.grid[1], code.rows)
        self._zeros = zeros
        self._group: Tensor | None = None
        if pieces.order is not None:
            order = pieces.order.view(torch.int32)
            if not torch.equal(order, torch.arange(code.columns, device=order.device, dtype=order.dtype) // self._wide):
                self._group = order

    def apply(self, values: Tensor, first: int, last: int) -> Tensor:
        """(number - zero point) · scale, in place: numbers [n, columns] of these rows."""
        if self._zeros is not None:
            self._by_group(values, self._zeros[:, first:last], Tensor.sub_)
        self._by_group(values, self._scales[:, first:last], Tensor.mul_)
        return values

    def _by_group(self, values: Tensor, numbers: Tensor, change: Callable[[Tensor, Tensor], object]) -> None:
        if self._group is None:
            in_tiles(values, numbers.T, self._wide, change)
        else:
            change(values, numbers.index_select(0, self._group).T.contiguous())


def _bytes_of_columns(words: Tensor) -> Tensor:
    """int32 words one below the other [n, m] as bytes one behind the other, uint8 [m, 4 · n]."""
    return words.T.contiguous().view(torch.uint8)
