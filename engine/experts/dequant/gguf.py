"""Blocks of GGUF files: weights of a row packed 32 or 256 at a time, with their scales inside the block.

Checked bit for bit against `gguf.quants`, which follows ggml-quants.c; layouts as in ggml-common.h (`block_q4_K`, ...).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.experts.dequant.code import MatrixCode, Pieces
from engine.experts.dequant.fp4 import E2M1
from engine.experts.dequant.scales import scale_values


def gguf_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """Weights in float32."""
    block_bytes, unpack = _BLOCKS[code.dtype]
    rows = pieces.weight.view(code.rows, -1)[first:last]
    return unpack(rows.reshape(-1, block_bytes)).view(last - first, code.columns)


def _half(raw: Tensor) -> Tensor:
    """Two bytes of each block as float32 [n, 1]."""
    return raw.contiguous().view(torch.float16).float()


def _nibbles(raw: Tensor, run: int) -> Tensor:
    """The low halves of `run` bytes, then their high halves, and so on: [n, bytes] to [n, 2 · bytes]."""
    parts = raw.view(raw.shape[0], -1, 1, run)
    return torch.cat([parts & 15, parts >> 4], dim=2).view(raw.shape[0], -1)


def _bits(raw: Tensor, shifts: tuple[int, ...], mask: int) -> Tensor:
    """Each byte shifted in turn: [n, bytes] to [n, shifts, bytes]."""
    by = torch.tensor(shifts, dtype=torch.uint8, device=raw.device)
    return (raw[:, None, :] >> by[None, :, None]) & mask


def _q4_0(raw: Tensor) -> Tensor:
    return _half(raw[:, :2]) * (_nibbles(raw[:, 2:].contiguous(), 16).float() - 8)


def _q8_0(raw: Tensor) -> Tensor:
    return _half(raw[:, :2]) * raw[:, 2:].contiguous().view(torch.int8).float()


def _mxfp4(raw: Tensor) -> Tensor:
    table = torch.tensor(E2M1, device=raw.device)
    numbers = _nibbles(raw[:, 1:].contiguous(), 16)
    return scale_values(raw[:, :1], "U8") * table.index_select(0, numbers.view(-1).int()).view(numbers.shape)


def _scales_and_minima(raw: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and minima of 6 bits in 12 bytes: [n, 12] to twice [n, 8, 1]."""
    scale, minimum, high = raw.view(-1, 3, 4).unbind(dim=1)
    scales = torch.cat([scale & 63, (high & 15) | ((scale >> 2) & 48)], dim=1)
    minima = torch.cat([minimum & 63, (high >> 4) | ((minimum >> 2) & 48)], dim=1)
    return scales.float()[:, :, None], minima.float()[:, :, None]


def _k(raw: Tensor, quants: Tensor) -> Tensor:
    """Eight groups of 32 numbers: scale · number - minimum."""
    scales, minima = _scales_and_minima(raw[:, 4:16].contiguous())
    scales, minima = _half(raw[:, :2])[:, :, None] * scales, _half(raw[:, 2:4])[:, :, None] * minima
    return scales * quants.view(-1, 8, 32).float() - minima


def _q4_k(raw: Tensor) -> Tensor:
    return _k(raw, _nibbles(raw[:, 16:].contiguous(), 32))


def _q5_k(raw: Tensor) -> Tensor:
    low = _nibbles(raw[:, 48:].contiguous(), 32).view(-1, 8, 32)
    high = _bits(raw[:, 16:48], (0, 1, 2, 3, 4, 5, 6, 7), 1)
    return _k(raw, low | (high << 4))


def _q6_k(raw: Tensor) -> Tensor:
    low = _nibbles(raw[:, :128].contiguous(), 64).view(-1, 8, 32)
    halves = raw[:, 128:192].reshape(-1, 32)
    high = _bits(halves, (0, 2, 4, 6), 3).view(-1, 8, 32)
    numbers = (low | (high << 4)).float() - 32
    scales = _half(raw[:, 208:]) * raw[:, 192:208].contiguous().view(torch.int8).float()
    return scales[:, :, None] * numbers.view(-1, 16, 16)


_BLOCKS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "Q4_0": (18, _q4_0),
    "Q8_0": (34, _q8_0),
    "MXFP4": (17, _mxfp4),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
}
GGUF_TYPES = frozenset(_BLOCKS)
