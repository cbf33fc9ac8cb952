"""GGUF types whose numbers are looked up: IQ4 in 16 levels, the smaller ones in grids of 4 or 8 weights at a time.

Layouts as in ggml-common.h (`block_iq2_xxs`, ...); the grids are those of the gguf package, which is read when a file
needs one. Checked bit for bit against `gguf.quants`. Shapes: n blocks of 256 weights, in groups of 32.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from engine.experts.dequant.gguf_bits import bits, half, halves, words
from engine.experts.dequant.tables import split_nibbles

IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_IQ1_STEP = 0.125


@cache
def _grid(name: str, device: torch.device) -> Tensor:
    """Weights of each grid point, float32 [points, 4 or 8]."""
    from gguf import quants

    kind = getattr(quants, name)
    kind.init_grid()
    return torch.from_numpy(np.asarray(kind.grid, dtype=np.float32)[0, 0]).to(device)


@cache
def _sign_table(device: torch.device) -> Tensor:
    """The eight signs that a number of 7 bits stands for, float32 [128, 8]: the eighth makes their number even."""
    numbers = torch.arange(128)
    places = (numbers[:, None] >> torch.arange(7)) & 1
    places = torch.cat([places, places.sum(dim=1, keepdim=True) & 1], dim=1)
    return (1 - 2 * places).float().to(device)


def _signs(raw: Tensor) -> Tensor:
    """A bit for each weight, float32 [n, bytes, 8]."""
    shifts = torch.arange(8, dtype=torch.uint8, device=raw.device)
    return 1 - 2 * ((raw[:, :, None] >> shifts) & 1).float()


def _places(found: Tensor, name: str) -> Tensor:
    """Grid points by number, [n, points] to float32 [n, points, weights]."""
    grid = _grid(name, found.device)
    return grid.index_select(0, found.reshape(-1)).view(*found.shape, grid.shape[1])


def _levels(raw: Tensor) -> Tensor:
    return split_nibbles(raw, 16, ("IQ4",), lambda: torch.tensor(IQ4_LEVELS, dtype=torch.float32))


def _iq4_nl(raw: Tensor) -> Tensor:
    return _levels(raw[:, 2:]).mul_(half(raw[:, :2]))


def _iq4_xs(raw: Tensor) -> Tensor:
    """Eight groups of 32; scales of 6 bits, the upper two of them in a word of their own."""
    high = (words(raw[:, 2:4], torch.int16) >> torch.arange(0, 16, 2, device=raw.device)) & 3
    scales = half(raw[:, :2]) * ((halves(raw[:, 4:8]).long() | (high << 4)) - 32).float()
    return _levels(raw[:, 8:]).view(-1, 8, 32).mul_(scales[:, :, None])


def _words_with_signs(raw: Tensor) -> tuple[Tensor, Tensor]:
    """Words of four times 7 bits of signs and 4 bits of scale: scales [n, 8], signs [n, 8, 4, 8]."""
    found = words(raw, torch.int32)
    numbers = (found[:, :, None] >> torch.arange(0, 28, 7, device=raw.device)) & 127
    signs = _sign_table(raw.device).index_select(0, numbers.reshape(-1)).view(*numbers.shape, 8)
    return (found >> 28).float(), signs


def _iq2_xxs(raw: Tensor) -> Tensor:
    pairs = raw[:, 2:].reshape(-1, 8, 8)
    scales, signs = _words_with_signs(pairs[:, :, 4:].reshape(-1, 32))
    factors = half(raw[:, :2]) * (0.5 + scales) * 0.25
    return factors[:, :, None, None] * _places(pairs[:, :, :4].long(), "IQ2_XXS") * signs


def _iq2_xs(raw: Tensor) -> Tensor:
    found = words(raw[:, 2:66], torch.int16)
    factors = half(raw[:, :2]) * (0.5 + halves(raw[:, 66:]).float()) * 0.25
    signs = _sign_table(raw.device).index_select(0, (found >> 9).reshape(-1)).view(-1, 16, 2, 8)
    return factors[:, :, None, None] * _places(found & 511, "IQ2_XS").view(-1, 16, 2, 8) * signs


def _iq2_s(raw: Tensor) -> Tensor:
    high = bits(raw[:, 66:74], (0, 2, 4, 6), 3).transpose(1, 2).reshape(-1, 32).long()
    factors = half(raw[:, :2]) * (0.5 + halves(raw[:, 74:]).float()) * 0.25
    grid = _places(raw[:, 2:34].long() | (high << 8), "IQ2_S").view(-1, 16, 2, 8)
    return factors[:, :, None, None] * grid * _signs(raw[:, 34:66]).view(-1, 16, 2, 8)


def _iq3_xxs(raw: Tensor) -> Tensor:
    scales, signs = _words_with_signs(raw[:, 66:])
    factors = half(raw[:, :2]) * (0.5 + scales) * 0.5
    return factors[:, :, None, None] * _places(raw[:, 2:66].long(), "IQ3_XXS").view(-1, 8, 4, 8) * signs


def _iq3_s(raw: Tensor) -> Tensor:
    high = bits(raw[:, 66:74], tuple(range(8)), 1).transpose(1, 2).reshape(-1, 64).long()
    factors = half(raw[:, :2]) * (1 + 2 * halves(raw[:, 106:]).float())
    grid = _places(raw[:, 2:66].long() | (high << 8), "IQ3_S").view(-1, 8, 4, 8)
    return factors[:, :, None, None] * grid * _signs(raw[:, 74:106]).view(-1, 8, 4, 8)


def _iq1_s(raw: Tensor) -> Tensor:
    found = words(raw[:, 34:], torch.int16)
    factors = half(raw[:, :2]) * (2 * ((found >> 12) & 7) + 1).float()
    steps = torch.where(found & 0x8000 == 0, _IQ1_STEP, -_IQ1_STEP)
    high = (found[:, :, None] >> torch.arange(0, 12, 3, device=raw.device)) & 7
    grid = _places(raw[:, 2:34].long() | (high.view(-1, 32) << 8), "IQ1_S").view(-1, 8, 4, 8)
    return factors[:, :, None, None] * (grid + steps[:, :, None, None])


def _iq1_m(raw: Tensor) -> Tensor:
    """The factor of the block is spread over the upper four bits of the four words with scales."""
    scales = words(raw[:, 48:], torch.int16)
    pieces = (scales & 0xF000) >> torch.tensor([12, 8, 4, 0], device=raw.device)
    whole = pieces.sum(dim=1)
    factor = torch.where(whole >= 0x8000, whole - 0x10000, whole).to(torch.int16).view(torch.float16).float()
    parts = (scales[:, :, None] >> torch.arange(0, 12, 3, device=raw.device)) & 7
    factors = factor[:, None] * (2 * parts.view(-1, 16) + 1).float()
    high = halves(raw[:, 32:48]).long()
    steps = torch.where(high & 8 == 0, _IQ1_STEP, -_IQ1_STEP).view(-1, 16, 2, 1)
    grid = _places(raw[:, :32].long() | ((high & 7) << 8), "IQ1_M").view(-1, 16, 2, 8)
    return factors[:, :, None, None] * (grid + steps)


GRID_BLOCKS: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "IQ1_S": (50, _iq1_s),
    "IQ1_M": (56, _iq1_m),
    "IQ2_XXS": (66, _iq2_xxs),
    "IQ2_XS": (74, _iq2_xs),
    "IQ2_S": (82, _iq2_s),
    "IQ3_XXS": (98, _iq3_xxs),
    "IQ3_S": (110, _iq3_s),
    "IQ4_NL": (18, _iq4_nl),
    "IQ4_XS": (136, _iq4_xs),
}
