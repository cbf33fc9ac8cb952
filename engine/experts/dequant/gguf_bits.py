"""Numbers of a few bits out of the bytes of GGUF blocks."""

import torch
from torch import Tensor


def half(raw: Tensor) -> Tensor:
    """Two bytes of each block as float32 [n, 1]."""
    return raw.contiguous().view(torch.float16).float()


def nibbles(raw: Tensor, run: int) -> Tensor:
    """The low halves of `run` bytes, then their high halves, and so on: [n, bytes] to [n, 2 · bytes]."""
    parts = raw.view(raw.shape[0], -1, 1, run)
    return torch.cat([parts & 15, parts >> 4], dim=2).view(raw.shape[0], -1)


def halves(raw: Tensor) -> Tensor:
    """The low and the high half of each byte side by side: [n, bytes] to [n, 2 · bytes]."""
    return torch.stack([raw & 15, raw >> 4], dim=2).view(raw.shape[0], -1)


def bits(raw: Tensor, shifts: tuple[int, ...], mask: int) -> Tensor:
    """Each byte shifted in turn: [n, bytes] to [n, shifts, bytes]."""
    by = torch.tensor(shifts, dtype=torch.uint8, device=raw.device)
    return (raw[:, None, :] >> by[None, :, None]) & mask


def words(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """Unsigned little-endian numbers of the size of `dtype` (int16 or int32) as int64: [n, bytes] to [n, numbers]."""
    return raw.contiguous().view(dtype).long() & ((1 << (8 * dtype.itemsize)) - 1)
