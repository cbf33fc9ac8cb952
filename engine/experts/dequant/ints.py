"""Whole numbers of 2 to 8 bits with a scale and a zero point for a group of columns.

Layouts: "packed" is pack-quantized of compressed-tensors: numbers along the rows in int32 words, lowest bits first,
each plus half its range; zero points the same way, but along the outputs. GPTQ packs along the inputs (numbers of 3
bits cross words), zero points along the outputs. AWQ packs both along the outputs, eight in the order of `_AWQ`.
Sources: `unpack_from_int32` of compressed-tensors; `dequantize_weight` of AutoGPTQ's and GPTQModel's torch kernels;
`dequantize_gemm` of AutoAWQ.
"""

import torch
from torch import Tensor

from engine.experts.dequant.code import MatrixCode, Pieces
from engine.experts.dequant.scales import scale_rows, scale_values, spread

_AWQ = (0, 4, 1, 5, 2, 6, 3, 7)  # where in a word the first, second, ... of eight neighbours lies


def int8_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """Bytes as they are: (number - zero point) · scale."""
    values = pieces.weight.view(torch.int8).view(code.rows, code.columns)[first:last].float()
    assert pieces.scale is not None
    if pieces.zero is not None:
        zeros = pieces.zero.view(torch.int8)[: code.grid[0] * code.grid[1]].view(code.grid)
        values = values - spread(zeros[first:last].float(), code)
    return values * spread(scale_rows(code, pieces.scale, first, last), code)


def packed_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """compressed-tensors: (number - zero point) · scale, both less half the range."""
    words = pieces.weight.view(torch.int32).view(code.rows, -1)[first:last]
    values = unpack(words, code.bits, dim=1)[:, : code.columns].float()
    zeros: Tensor | int = 1 << (code.bits - 1)
    if pieces.zero is not None:
        stored = unpack(pieces.zero.view(torch.int32).view(-1, code.grid[1]), code.bits, dim=0)
        zeros = spread(stored[first:last].float(), code)
    assert pieces.scale is not None
    return (values - zeros) * spread(scale_rows(code, pieces.scale, first, last), code)


def gptq_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """GPTQ: (number - zero point) · scale, by the group of each column."""
    words = pieces.weight.view(torch.int32).view(-1, code.rows)[:, first:last]
    values = unpack(words, code.bits, dim=0)[: code.columns]
    zeros = None
    if pieces.zero is not None:
        stored = pieces.zero.view(torch.int32).view(code.grid[1], -1)
        zeros = (unpack(stored, code.bits, dim=1)[:, first:last] + code.zero_step) & ((1 << code.bits) - 1)
    return _column_major(code, pieces, values, zeros, first, last)


def awq_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """AWQ: (number - zero point) · scale."""
    start, end = first // 8, -(-last // 8)

    def numbers(raw: Tensor, down: int) -> Tensor:
        words = raw.view(torch.int32).view(down, code.rows // 8)[:, start:end]
        found = unpack(words, 4, dim=1).reshape(down, -1, 8)
        return found[:, :, list(_AWQ)].reshape(down, -1)[:, first - 8 * start : last - 8 * start]

    zeros = None if pieces.zero is None else numbers(pieces.zero, code.grid[1])
    return _column_major(code, pieces, numbers(pieces.weight, code.columns), zeros, first, last)


def _column_major(
    code: MatrixCode, pieces: Pieces, values: Tensor, zeros: Tensor | None, first: int, last: int
) -> Tensor:
    """Numbers [columns, n], zero points [groups, n] and scales [groups, rows] to float32 [n, columns]."""
    assert pieces.scale is not None and code.scale_dtype is not None
    scales = scale_values(pieces.scale, code.scale_dtype).view(code.grid[1], code.rows)[:, first:last]
    if pieces.order is not None:
        group = pieces.order.view(torch.int32).long()
    else:
        group = torch.arange(code.columns, device=values.device) // code.tile[1]
    middle = 1 << (code.bits - 1) if zeros is None else zeros[group].float()
    return ((values.float() - middle) * scales[group]).T


def unpack(words: Tensor, bits: int, dim: int) -> Tensor:
    """Numbers of `bits` bits out of int32 words along `dim` (0 or 1), lowest bits first; may cross words."""
    mask = (1 << bits) - 1
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
        if dim == 1:
            return ((words[:, :, None] >> shifts) & mask).reshape(words.shape[0], -1)
        return ((words[:, None, :] >> shifts[None, :, None]) & mask).reshape(-1, words.shape[1])
    if dim == 1:
        return unpack(words.T, bits, 0).T
    wide = words.reshape(-1, bits, words.shape[1]).long() & 0xFFFFFFFF  # 32 numbers fill `bits` words
    places = [bits * number for number in range(32)]
    low = torch.tensor([place // 32 for place in places], device=words.device)
    shifts_of = torch.tensor([place % 32 for place in places], device=words.device)
    high = (low + 1).clamp(max=bits - 1)
    pairs = wide[:, low] | (wide[:, high] << 32)
    return ((pairs >> shifts_of[None, :, None]) & mask).int().reshape(-1, words.shape[1])
