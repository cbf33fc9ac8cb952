"""Blocks of GGUF files: weights of a row packed 32 or 256 at a time, with their scales inside the block.

Checked bit for bit against `gguf.quants`, which follows ggml-quants.c; layouts as in ggml-common.h (`block_q4_K`, ...).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.experts.dequant.code import MatrixCode, Pieces
from engine.experts.dequant.floats import e4m3_values
from engine.experts.dequant.fp4 import E2M1
from engine.experts.dequant.gguf_bits import bits, half, nibbles
from engine.experts.dequant.gguf_grids import GRID_BLOCKS
from engine.experts.dequant.scales import scale_values
from engine.experts.dequant.tables import split_nibbles


def gguf_rows(code: MatrixCode, pieces: Pieces, first: int, last: int) -> Tensor:
    """Weights in float32; a scale of the whole matrix, which NVFP4 has, is a factor."""
    block_bytes, unpack = _BLOCKS[code.dtype]
    rows = pieces.weight.view(code.rows, -1)[first:last]
    values = unpack(rows.reshape(-1, block_bytes)).view(last - first, code.columns)
    return values if pieces.whole is None else values * pieces.whole


def _e2m1(raw: Tensor, run: int) -> Tensor:
    return split_nibbles(raw, run, ("E2M1",), lambda: torch.tensor(E2M1))


def _q4_0(raw: Tensor) -> Tensor:
    return nibbles(raw[:, 2:].contiguous(), 16).float().sub_(8).mul_(half(raw[:, :2]))


def _q4_1(raw: Tensor) -> Tensor:
    return nibbles(raw[:, 4:].contiguous(), 16).float().mul_(half(raw[:, :2])).add_(half(raw[:, 2:4]))


def _fifth_bits(raw: Tensor) -> Tensor:
    """One bit of each of 32 weights in 4 bytes: [n, 4] to [n, 32], in the place of the fifth bit."""
    shifts = torch.arange(8, dtype=torch.uint8, device=raw.device)
    return (((raw[:, :, None] >> shifts) & 1) << 4).view(raw.shape[0], 32)


def _q5_0(raw: Tensor) -> Tensor:
    numbers = nibbles(raw[:, 6:].contiguous(), 16) | _fifth_bits(raw[:, 2:6])
    return numbers.float().sub_(16).mul_(half(raw[:, :2]))


def _q5_1(raw: Tensor) -> Tensor:
    numbers = nibbles(raw[:, 8:].contiguous(), 16) | _fifth_bits(raw[:, 4:8])
    return numbers.float().mul_(half(raw[:, :2])).add_(half(raw[:, 2:4]))


def _q8_0(raw: Tensor) -> Tensor:
    return raw.view(torch.int8)[:, 2:].float().mul_(half(raw[:, :2]))


def _mxfp4(raw: Tensor) -> Tensor:
    return _e2m1(raw[:, 1:], 16).mul_(scale_values(raw[:, :1], "U8"))


def _nvfp4(raw: Tensor) -> Tensor:
    """Four groups of 16: scales are E4M3 without a sign, 0x7F stands for zero."""
    scales = e4m3_values(raw[:, :4] & 0x7F)
    scales = torch.where(raw[:, :4] & 0x7F == 0x7F, 0.0, scales)
    return _e2m1(raw[:, 4:], 8).view(-1, 4, 16).mul_(scales[:, :, None])


def _q2_k(raw: Tensor) -> Tensor:
    """Sixteen groups of 16 numbers; scale and minimum of a group share a byte."""
    scales, factor, least = raw[:, :16], half(raw[:, 80:82]), half(raw[:, 82:84])
    numbers = bits(raw[:, 16:80].reshape(-1, 32), (0, 2, 4, 6), 3).view(-1, 16, 16).float()
    return (factor * (scales & 15).float())[:, :, None] * numbers - (least * (scales >> 4).float())[:, :, None]


def _q3_k(raw: Tensor) -> Tensor:
    """Sixteen groups of 16 numbers; a high bit that is not set takes 4 away."""
    low = nibbles(raw[:, 96:104].contiguous(), 8)
    high = bits(raw[:, 104:108], (0, 2, 4, 6), 3).view(-1, 16)
    scales = half(raw[:, 108:]) * ((low | (high << 4)).float() - 32)
    numbers = bits(raw[:, 32:96].reshape(-1, 32), (0, 2, 4, 6), 3).view(-1, 16, 16).float()
    missing = 1 - bits(raw[:, :32], (0, 1, 2, 3, 4, 5, 6, 7), 1).view(-1, 16, 16).float()
    return scales[:, :, None] * (numbers - 4 * missing)


def _scales_and_minima(raw: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and minima of 6 bits in 12 bytes: [n, 12] to twice [n, 8, 1]."""
    scale, minimum, high = raw.view(-1, 3, 4).unbind(dim=1)
    scales = torch.cat([scale & 63, (high & 15) | ((scale >> 2) & 48)], dim=1)
    minima = torch.cat([minimum & 63, (high >> 4) | ((minimum >> 2) & 48)], dim=1)
    return scales.float()[:, :, None], minima.float()[:, :, None]


def _k(raw: Tensor, numbers: Tensor) -> Tensor:
    """Eight groups of 32 numbers: scale · number - minimum, in place."""
    scales, minima = _scales_and_minima(raw[:, 4:16].contiguous())
    scales, minima = half(raw[:, :2])[:, :, None] * scales, half(raw[:, 2:4])[:, :, None] * minima
    return numbers.view(-1, 8, 32).mul_(scales).sub_(minima)


def _q4_k(raw: Tensor) -> Tensor:
    return _k(raw, nibbles(raw[:, 16:].contiguous(), 32).float())


def _q5_k(raw: Tensor) -> Tensor:
    low = nibbles(raw[:, 48:].contiguous(), 32).view(-1, 8, 32)
    high = bits(raw[:, 16:48], (0, 1, 2, 3, 4, 5, 6, 7), 1)
    return _k(raw, (low | (high << 4)).float())


def _q6_k(raw: Tensor) -> Tensor:
    low = nibbles(raw[:, :128].contiguous(), 64).view(-1, 8, 32)
    high = bits(raw[:, 128:192].reshape(-1, 32), (0, 2, 4, 6), 3).view(-1, 8, 32)
    numbers = (low | (high << 4)).float().sub_(32)
    scales = half(raw[:, 208:]) * raw.view(torch.int8)[:, 192:208].float()
    return numbers.view(-1, 16, 16).mul_(scales[:, :, None])


def _tq1_0(raw: Tensor) -> Tensor:
    """Numbers of three values, five to a byte as fractions of 243."""

    def thirds(part: Tensor, count: int) -> Tensor:
        factors = torch.tensor([3**power for power in range(count)], dtype=torch.int16, device=raw.device)
        wide = (part[:, None, :].to(torch.int16) * factors[None, :, None]) & 0xFF
        return ((wide * 3) >> 8).view(raw.shape[0], -1)

    numbers = torch.cat([thirds(raw[:, :32], 5), thirds(raw[:, 32:48], 5), thirds(raw[:, 48:52], 4)], dim=1)
    return half(raw[:, 52:]) * (numbers.float() - 1)


def _tq2_0(raw: Tensor) -> Tensor:
    numbers = bits(raw[:, :64].reshape(-1, 32), (0, 2, 4, 6), 3).view(raw.shape[0], -1)
    return half(raw[:, 64:]) * (numbers.float() - 1)


_BLOCKS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q5_0": (22, _q5_0),
    "Q5_1": (24, _q5_1),
    "Q8_0": (34, _q8_0),
    "MXFP4": (17, _mxfp4),
    "NVFP4": (36, _nvfp4),
    "Q2_K": (84, _q2_k),
    "Q3_K": (110, _q3_k),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
    "TQ1_0": (54, _tq1_0),
    "TQ2_0": (66, _tq2_0),
    **GRID_BLOCKS,
}
GGUF_TYPES = frozenset(_BLOCKS)
