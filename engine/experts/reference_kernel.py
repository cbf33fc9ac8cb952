"""Packed experts by reference: unpack one expert, compute it in plain torch, forget it. Exact, and slow."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from engine.banks.bank import BankLayout
from engine.experts.dequant.code import MatrixCode, Pieces
from engine.experts.dequant.matrix import dequantise
from engine.experts.kernels import ExpertWeights

Side = Literal["up", "down"]
SIDES: tuple[Side, Side] = ("up", "down")


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """One matrix inside the records of a layer, and the rows of an expert's weights that it is."""

    code: MatrixCode
    side: Side
    part: str  # "gate_up", "gate", "up", "down"
    place: int = 0  # which of the `count` matrices in that part
    count: int = 1
    first_row: int = 0
    row_step: int = 1  # 2: gate and up rows take turns in the computed matrix

    def place_of(self, layout: BankLayout, suffix: str) -> tuple[int, int] | None:
        """Where a piece of it begins in a record, and its bytes; "" are the weights, "_scale", "_zero", "_order"."""
        name = f"{self.part}{suffix}"
        if not layout.has(name):
            return None
        part = layout.part(name)
        size = part.bytes // self.count
        return part.offset + self.place * size, size


@dataclass(slots=True)
class PackedExperts:
    """What the records of a layer hold."""

    matrices: tuple[StoredMatrix, ...]
    wholes: tuple[Tensor | None, ...]  # scales [E] of whole matrices, one entry for each matrix
    bias_dtype: torch.dtype | None
    transposed: bool  # the model's module computes rows @ up, not rows @ up.T

    @property
    def whole_bytes(self) -> int:
        """Bytes of the scales of whole matrices: they are no part of a record."""
        return sum(whole.nbytes for whole in self.wholes if whole is not None)


class Scratch:
    """Memory for the unpacked matrices of one expert on each device, as large as the largest needs it."""

    def __init__(self) -> None:
        self._rooms: dict[tuple[torch.device, Side], Tensor] = {}

    def reserve(self, side: Side, nbytes: int, device: torch.device) -> None:
        """Make room; called while loading, for memory born in inference mode cannot be written outside of it."""
        room = self._rooms.get((device, side))
        if room is None or room.nbytes < nbytes:
            self._rooms[device, side] = torch.empty(nbytes, dtype=torch.uint8, device=device)

    def nbytes(self, device: torch.device) -> int:
        """Memory on one device."""
        return sum(room.nbytes for (where, _), room in self._rooms.items() if where == device)

    def matrix(self, side: Side, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """[rows, columns] with whatever was there before."""
        room = self._rooms[device, side]
        return room[: rows * columns * dtype.itemsize].view(dtype).view(rows, columns)


class ReferenceKernel:
    """Unpacks into the scratch. Only the experts that tokens have chosen are ever asked for."""

    name = "reference"

    def __init__(
        self, layout: BankLayout, packed: PackedExperts, *, dtype: torch.dtype, device: torch.device, scratch: Scratch
    ) -> None:
        """`dtype` of the unpacked weights; `device` computes."""
        self._layout = layout
        self._packed = packed
        self._dtype = dtype
        self._device = device
        self._scratch = scratch
        self._wholes = [None if whole is None else whole.to(device) for whole in packed.wholes]
        experts = layout.experts
        self._sizes: dict[Side, tuple[int, int]] = {
            "up": (experts.inner * (2 if experts.has_gate else 1), experts.width),
            "down": (experts.width, experts.inner),
        }
        self._up_name = "gate_up" if experts.has_gate else "up"
        for side, (rows, columns) in self._sizes.items():
            scratch.reserve(side, rows * columns * dtype.itemsize, device)

    def expert(self, record: Tensor, number: int) -> ExpertWeights:
        """The weights, in the scratch: valid until the next expert of any layer."""
        return self.in_scratch(record, lambda up, down: self._unpack(record, number, up, down))

    def exact(self, record: Tensor, number: int) -> ExpertWeights:
        """The weights in float32 and memory of their own."""
        up, down = (torch.empty(size, device=record.device) for size in (self._sizes["up"], self._sizes["down"]))
        self._unpack(record, number, up, down)
        return self._weights(record, up, down)

    def in_scratch(self, record: Tensor, unpack: Callable[[Tensor, Tensor], None]) -> ExpertWeights:
        """The weights that `unpack` has written: outputs before inputs, whatever the model's module has."""
        up, down = (self._scratch.matrix(side, *self._sizes[side], self._dtype, self._device) for side in SIDES)
        unpack(up, down)
        return self._weights(record, up, down)

    def size(self, side: Side) -> tuple[int, int]:
        """Outputs and inputs of the matrices of one side."""
        return self._sizes[side]

    def bias(self, record: Tensor, side: Side, dtype: torch.dtype) -> Tensor | None:
        """[outputs], where there is one."""
        if self._packed.bias_dtype is None:
            return None
        name = self._up_name if side == "up" else "down"
        return self._layout.raw(record, f"{name}_bias").view(self._packed.bias_dtype).to(dtype)

    def _unpack(self, record: Tensor, number: int, up: Tensor, down: Tensor) -> None:
        for stored, whole in zip(self._packed.matrices, self._wholes, strict=True):
            out = up if stored.side == "up" else down
            last = stored.first_row + stored.code.rows * stored.row_step
            target = out[stored.first_row : last : stored.row_step]
            one = None if whole is None else whole[number].to(record.device).float()
            dequantise(stored.code, self._pieces(record, stored, one), target)

    def _weights(self, record: Tensor, up: Tensor, down: Tensor) -> ExpertWeights:
        biases = [self.bias(record, side, up.dtype) for side in SIDES]
        if self._packed.transposed:
            up, down = up.T, down.T
        return ExpertWeights(up, down, *biases)

    def _pieces(self, record: Tensor, stored: StoredMatrix, whole: Tensor | None) -> Pieces:
        def piece(suffix: str) -> Tensor | None:
            found = stored.place_of(self._layout, suffix)
            return None if found is None else record[found[0] : found[0] + found[1]]

        weight = piece("")
        assert weight is not None
        return Pieces(weight, piece("_scale"), piece("_zero"), piece("_order"), whole)
