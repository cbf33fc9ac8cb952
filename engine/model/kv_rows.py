"""Keys or values of one layer, a row a token, as they are stored: in the model's type, or in fp8 with a scale a row."""

from typing import Protocol

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
_FP8_MOST = 448.0  # the largest e4m3 number; beyond it there is only NaN
_LEAST_SCALE = 1e-12  # of a row of zeros
_BLOCK_TOKENS = 1024  # rows that overlap on their way are moved so many at a time, through a copy

Places = slice | Tensor


class Rows(Protocol):
    """[1, K, places, D] in memory that was given."""

    stored: Tensor  # [1, K, places, D] in the type it is stored in

    def write(self, places: Places, new: Tensor) -> None:
        """Store [1, K, n, D]."""
        ...

    def read(self, places: Places) -> Tensor:
        """[1, K, n, D] in the model's type; valid until the next read of any layer."""
        ...

    def as_stored(self, new: Tensor) -> Tensor:
        """What `read` would give after `write`, so that an answer does not depend on the chunks of its prompt."""
        ...

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy rows to other places, which may overlap."""
        ...

    @property
    def nbytes(self) -> int: ...


class PlainRows:
    """Stored as the model computes; reading copies nothing."""

    def __init__(self, stored: Tensor) -> None:
        self.stored = stored

    def write(self, places: Places, new: Tensor) -> None:
        self.stored[:, :, places] = new

    def read(self, places: Places) -> Tensor:
        return self.stored[:, :, places]

    def as_stored(self, new: Tensor) -> Tensor:
        return new

    def move(self, source: int, target: int, tokens: int) -> None:
        move_rows(self.stored, source, target, tokens)

    @property
    def nbytes(self) -> int:
        return self.stored.nbytes


class Fp8Rows:
    """A row is stored as e4m3 numbers times one scale in bf16, so that its largest value is the largest e4m3 number.

    Reading unpacks into memory that all layers share: a layer's attention is done before the next one reads.
    """

    def __init__(self, stored: Tensor, scales: Tensor, unpacked: Tensor) -> None:
        """`stored`: [1, K, places, D] e4m3; `scales`: [1, K, places, 1] bf16; `unpacked`: K · places · D values."""
        self.stored = stored
        self._scales = scales
        self._unpacked = unpacked

    def write(self, places: Places, new: Tensor) -> None:
        packed, scales = self._packed(new)
        self._scales[:, :, places] = scales
        # an index put is not written for fp8 on every device; its bytes are copied instead
        self.stored.view(torch.uint8)[:, :, places] = packed.view(torch.uint8)

    def as_stored(self, new: Tensor) -> Tensor:
        packed, scales = self._packed(new)
        return packed.to(new.dtype).mul_(scales)

    def _packed(self, new: Tensor) -> tuple[Tensor, Tensor]:
        exact = new.float()
        scales = (exact.abs().amax(dim=-1, keepdim=True) / _FP8_MOST).clamp_min(_LEAST_SCALE).to(self._scales.dtype)
        return (exact / scales.float()).clamp(-_FP8_MOST, _FP8_MOST).to(self.stored.dtype), scales

    def read(self, places: Places) -> Tensor:
        packed = self.stored.view(torch.uint8)[:, :, places].view(self.stored.dtype)
        unpacked = self._unpacked[: packed.numel()].view(packed.shape)
        return unpacked.copy_(packed).mul_(self._scales[:, :, places])

    def move(self, source: int, target: int, tokens: int) -> None:
        move_rows(self.stored.view(torch.uint8), source, target, tokens)
        move_rows(self._scales, source, target, tokens)

    @property
    def nbytes(self) -> int:
        return self.stored.nbytes + self._scales.nbytes


def move_rows(memory: Tensor, source: int, target: int, tokens: int) -> None:
    """Copy `tokens` rows along the axis before the last; they may overlap, and few are in flight at a time."""
    step = abs(target - source)
    block = max(step, _BLOCK_TOKENS)
    starts = range(0, tokens, block)
    for start in starts if target < source else reversed(starts):
        size = min(block, tokens - start)
        rows = memory[..., source + start : source + start + size, :]
        memory[..., target + start : target + start + size, :] = rows.clone() if size > step else rows
