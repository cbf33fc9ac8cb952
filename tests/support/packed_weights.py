"""Random packed matrices and what they stand for, by formulas that share nothing with the engine's.

Every packer returns the tensors of one matrix [rows, columns] by the ending of their names, and its weights in float32.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Packed = tuple[dict[str, Tensor], Tensor]
Packer = Callable[[torch.Generator, int, int], Packed]

FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def _fp4(random: torch.Generator, rows: int, columns: int) -> Packed:
    codes = torch.randint(16, (rows, columns), generator=random)
    packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).to(torch.uint8)
    return {"": packed}, torch.tensor(FP4)[codes]


def _spread(scales: Tensor, tall: int, wide: int, rows: int, columns: int) -> Tensor:
    return scales.float().repeat_interleave(tall, 0).repeat_interleave(wide, 1)[:rows, :columns]


def mxfp4(random: torch.Generator, rows: int, columns: int) -> Packed:
    """compressed-tensors' mxfp4-pack-quantized."""
    packed, values = _fp4(random, rows, columns)
    exponents = torch.randint(120, 124, (rows, columns // 32), generator=random)
    scales = torch.pow(2.0, exponents - 127)
    tensors = {"weight_packed": packed[""], "weight_scale": exponents.to(torch.uint8)}
    return tensors, values * _spread(scales, 1, 32, rows, columns)


def mxfp4_in_int8(random: torch.Generator, rows: int, columns: int) -> Packed:
    """DeepSeek V4: the same bytes as int8, exponents as e8m0."""
    tensors, values = mxfp4(random, rows, columns)
    scale = tensors["weight_scale"].view(torch.float8_e8m0fnu)
    return {"weight": tensors["weight_packed"].view(torch.int8), "scale": scale}, values


def _nvfp4(random: torch.Generator, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    packed, values = _fp4(random, rows, columns)
    scales = (torch.rand(rows, columns // 16, generator=random) * 200 + 20).to(torch.float8_e4m3fn)
    return packed[""], scales, values


def nvfp4_modelopt(random: torch.Generator, rows: int, columns: int) -> Packed:
    """The second scale is a factor."""
    packed, scales, values = _nvfp4(random, rows, columns)
    whole = torch.rand((), generator=random) * 3e-4 + 2e-4
    tensors = {"weight": packed, "weight_scale": scales, "weight_scale_2": whole, "input_scale": torch.tensor(1.0)}
    return tensors, values * _spread(scales.float() * whole, 1, 16, rows, columns)


def nvfp4_compressed(random: torch.Generator, rows: int, columns: int) -> Packed:
    """The second scale is a divisor."""
    packed, scales, values = _nvfp4(random, rows, columns)
    whole = torch.rand(1, generator=random) * 2000 + 2000
    tensors = {
        "weight_packed": packed,
        "weight_scale": scales,
        "weight_global_scale": whole,
        "input_global_scale": torch.tensor([1.0]),
    }
    return tensors, values * _spread(scales.float() / whole, 1, 16, rows, columns)


def _fp8(random: torch.Generator, rows: int, columns: int) -> Tensor:
    return (torch.randn(rows, columns, generator=random) * 50).to(torch.float8_e4m3fn)


def fp8_blocks(name: str, dtype: torch.dtype) -> Packer:
    """Tiles of 128 × 128; `name` of the scales, and their type."""

    def pack(random: torch.Generator, rows: int, columns: int) -> Packed:
        weight = _fp8(random, rows, columns)
        grid = (-(-rows // 128), -(-columns // 128))
        if dtype is torch.float8_e8m0fnu:
            scales = torch.pow(2.0, torch.randint(-9, -6, grid, generator=random)).to(dtype)
        else:
            scales = (torch.rand(grid, generator=random) * 4e-3 + 2e-3).to(dtype)
        return {"weight": weight, name: scales}, weight.float() * _spread(scales, 128, 128, rows, columns)

    return pack


def fp8_whole(random: torch.Generator, rows: int, columns: int) -> Packed:
    """One scale a matrix."""
    weight, scale = _fp8(random, rows, columns), torch.rand((), generator=random) * 4e-3 + 2e-3
    return {"weight": weight, "weight_scale": scale, "input_scale": torch.tensor(1.0)}, weight.float() * scale


def fp8_rows(random: torch.Generator, rows: int, columns: int) -> Packed:
    """One scale a row, in bf16."""
    weight = _fp8(random, rows, columns)
    scales = (torch.rand(rows, 1, generator=random) * 4e-3 + 2e-3).to(torch.bfloat16)
    return {"weight": weight, "weight_scale": scales}, weight.float() * scales.float()


def mxfp8(random: torch.Generator, rows: int, columns: int) -> Packed:
    """One exponent for 32 numbers of a row."""
    weight = _fp8(random, rows, columns)
    exponents = torch.randint(117, 121, (rows, columns // 32), generator=random)
    scales = torch.pow(2.0, exponents - 127)
    tensors = {"weight": weight, "weight_scale": exponents.to(torch.uint8)}
    return tensors, weight.float() * _spread(scales, 1, 32, rows, columns)


def _to_words(numbers: Tensor, bits: int) -> Tensor:
    """Rows of numbers as one stream of bits, lowest first, cut into int32 words."""
    places = (numbers[:, :, None] >> torch.arange(bits)) & 1
    stream = places.reshape(numbers.shape[0], -1, 32)
    words = (stream.long() << torch.arange(32)).sum(dim=2)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def _ints(
    random: torch.Generator, rows: int, columns: int, bits: int, group: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    numbers = torch.randint(1 << bits, (rows, columns), generator=random)
    zeros = torch.randint(1, (1 << bits) - 1, (rows, columns // group), generator=random)
    scales = ((torch.rand(rows, columns // group, generator=random) + 0.5) * 0.5 / (1 << bits)).to(dtype)
    return numbers, zeros, scales


def gptq(bits: int, group: int, *, version: int = 1, reordered: bool = False) -> Packer:
    """GPTQ; version 1 stores zero points less one."""

    def pack(random: torch.Generator, rows: int, columns: int) -> Packed:
        numbers, zeros, scales = _ints(random, rows, columns, bits, group, torch.float16)
        order = torch.arange(columns, dtype=torch.int32) // group
        if reordered:
            order = order[torch.randperm(columns, generator=random)]
        tensors = {
            "qweight": _to_words(numbers, bits).T.contiguous(),
            "qzeros": _to_words((zeros - (1 if version == 1 else 0)).T, bits),
            "scales": scales.T.contiguous(),
            "g_idx": order,
        }
        return tensors, (numbers - zeros[:, order.long()]) * scales.float()[:, order.long()]

    return pack


def awq(random: torch.Generator, rows: int, columns: int) -> Packed:
    """AWQ, groups of 64: eight neighbours lie in a word in the order 0 2 4 6 1 3 5 7."""
    numbers, zeros, scales = _ints(random, rows, columns, 4, 64, torch.float16)

    def words(values: Tensor) -> Tensor:
        mixed = values.T.reshape(values.shape[1], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        return _to_words(mixed.reshape(values.shape[1], -1), 4)

    tensors = {"qweight": words(numbers), "qzeros": words(zeros), "scales": scales.T.contiguous()}
    return tensors, (numbers - _spread(zeros, 1, 64, rows, columns)) * _spread(scales, 1, 64, rows, columns)


def packed_ints(bits: int, group: int, *, zeros: bool) -> Packer:
    """pack-quantized of compressed-tensors, with or without zero points."""

    def pack(random: torch.Generator, rows: int, columns: int) -> Packed:
        numbers, points, scales = _ints(random, rows, columns, bits, group, torch.bfloat16)
        tensors = {
            "weight_packed": _to_words(numbers, bits),
            "weight_scale": scales,
            "weight_shape": torch.tensor([rows, columns]),
        }
        if zeros:
            tensors["weight_zero_point"] = _to_words(points.T, bits).T.contiguous()
        else:
            points = torch.full_like(points, 1 << (bits - 1))
        return tensors, (numbers - _spread(points, 1, group, rows, columns)) * _spread(scales, 1, group, rows, columns)

    return pack


def int8_rows(random: torch.Generator, rows: int, columns: int) -> Packed:
    """int-quantized of compressed-tensors, one scale a row."""
    numbers, _, scales = _ints(random, rows, columns, 8, columns, torch.bfloat16)
    values = numbers - 128
    return {"weight": values.to(torch.int8), "weight_scale": scales}, values * scales.float()
