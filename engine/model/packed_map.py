"""Which bytes of packed expert tensors belong where in the records of one layer, and how they are to be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.banks.bank import BankLayout
from engine.checkpoint.loader import TensorReader
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.checkpoint_packed import PackedTensor
from engine.contract.errors import ModelFileError, PlanMismatchError
from engine.experts.dequant.code import NUMBER_TYPES, MatrixCode, code_of, unreadable
from engine.experts.reference_kernel import PackedExperts, Side, StoredMatrix
from engine.system import select


@dataclass(frozen=True, slots=True)
class PartRead:
    """`nbytes` of a tensor, from `start` on, go to one part of one expert, `part_start` bytes into it."""

    entry: TensorEntry
    start: int
    nbytes: int
    part: str
    expert: int
    part_start: int


@dataclass(slots=True)
class _Source:
    """The tensors of one matrix: one for each expert, or one (number None) for all."""

    part: str  # "gate_up", "up", "down"
    place: int  # which of the `count` matrices below each other
    count: int
    tensors: dict[int | None, PackedTensor] = field(default_factory=dict)


class PackedLayer:
    """Collects the packed tensors of a layer, then lays them out."""

    def __init__(self, layer: int, layout: BankLayout, *, transposed: bool, quantised: Mapping[str, Any]) -> None:
        """`transposed`: the model's module has its matrices so; the files never do. `quantised`: of config.json."""
        self._layer = layer
        self._layout = layout
        self._transposed = transposed
        self._quantised = quantised
        self._sources: dict[tuple[str, int], _Source] = {}
        self._wholes: list[dict[int | None, TensorEntry]] = []
        self.matrices: list[StoredMatrix] = []
        self.reads: list[PartRead] = []
        self.bias_dtype: torch.dtype | None = None

    def add(self, part: str, place: int, count: int, expert: int | None, tensor: PackedTensor) -> None:
        """Note a tensor; `expert` None: it holds those of all experts."""
        source = self._sources.setdefault((part, place), _Source(part, place, count))
        if expert is None or expert < self._layout.n_experts:
            source.tensors[expert] = tensor

    def lay_out(self) -> None:
        """Find out how every matrix is to be read, and where its pieces go.

        Raises:
            UnsupportedModelError: a layout the engine does not compute.
            PlanMismatchError: other bytes than planned.
        """
        for _, source in sorted(self._sources.items()):
            self._add_matrix(source)

    def read_wholes(self, reader: TensorReader) -> PackedExperts:
        """Read the scales of whole matrices, in their own number type, and describe the records.

        Raises:
            ModelFileError: an expert has none, or the file could not be read.
        """
        wholes = tuple(self._read_whole(entries, reader) for entries in self._wholes)
        return PackedExperts(tuple(self.matrices), wholes, self.bias_dtype, self._transposed)

    def _add_matrix(self, source: _Source) -> None:
        layout, experts = self._layout, self._layout.experts
        side: Side = "down" if source.part == "down" else "up"
        columns = experts.inner if side == "down" else experts.width
        rows = experts.width if side == "down" else experts.inner
        if source.part == "gate_up" and source.count == 1:
            rows *= 2
        part, place, count = source.part, source.place, source.count
        if not layout.has(part):  # gate and up are stored differently
            part, place, count = ("gate", "up")[place], 0, 1
        has_scales = layout.has(f"{part}_scale")
        codes: set[MatrixCode] = set()
        wholes: dict[int | None, TensorEntry] = {}
        for expert, tensor in source.tensors.items():
            matrices = layout.n_experts if expert is None else 1
            if not _is_upright(tensor, rows, columns, fused=expert is None):
                raise unreadable(tensor)
            codes.add(
                code_of(tensor, rows, columns, matrices=matrices, scale_in_record=has_scales, quantised=self._quantised)
            )
            self._add_reads(tensor, expert, part, place, count)
            whole = tensor.whole if tensor.whole is not None or has_scales else tensor.scale
            if whole is not None:
                if whole.values != matrices:
                    raise unreadable(tensor)
                wholes[expert] = whole
        if len(codes) != 1:
            raise unreadable(next(iter(source.tensors.values())))
        first_row = source.place * rows if side == "up" else 0
        self.matrices.append(StoredMatrix(codes.pop(), side, part, place, count, first_row))
        self._wholes.append(wholes)

    def _add_reads(self, tensor: PackedTensor, expert: int | None, part: str, place: int, count: int) -> None:
        n_experts = self._layout.n_experts
        numbers = range(n_experts) if expert is None else (expert,)
        scale = tensor.scale if self._layout.has(f"{part}_scale") else None
        pieces = (("", tensor.weight), ("_scale", scale), ("_zero", tensor.zero), ("_order", tensor.order))
        for suffix, entry in pieces:
            if entry is None:
                continue
            name, size = f"{part}{suffix}", entry.nbytes // len(numbers)
            planned = self._layout.part(name).bytes if self._layout.has(name) else 0
            if size * count != planned or size * len(numbers) != entry.nbytes:
                raise unlike_plan(entry.name, entry.nbytes, planned * len(numbers) // count)
            for position, number in enumerate(numbers):
                self.reads.append(PartRead(entry, position * size, size, name, number, place * size))

    def _read_whole(self, entries: dict[int | None, TensorEntry], reader: TensorReader) -> Tensor | None:
        if not entries:
            return None
        if None in entries:
            return read_entry(entries[None], reader).flatten()
        if missing := [number for number in range(self._layout.n_experts) if number not in entries]:
            raise ModelFileError(
                f"The weights of layer {self._layer} are not complete: a scale of expert {missing[0]} is missing.",
                "Download the model again.",
                layer=self._layer,
                missing_experts=len(missing),
            )
        return torch.cat([read_entry(entries[number], reader).flatten() for number in range(self._layout.n_experts)])


def _is_upright(tensor: PackedTensor, rows: int, columns: int, *, fused: bool) -> bool:
    """Whether outputs come before inputs, as far as the sizes tell; packed inputs are fewer than inputs."""
    if tensor.column_major:
        return not fused
    shape = tensor.weight.shape[1:] if fused else tensor.weight.shape
    return len(shape) >= 2 and shape[0] == rows


def read_entry(entry: TensorEntry, reader: TensorReader) -> Tensor:
    """One whole tensor in its own type.

    Raises:
        ModelFileError: a type the engine does not know, or the file could not be read.
    """
    dtype = NUMBER_TYPES.get(entry.dtype)
    if dtype is None or entry.values * dtype.itemsize != entry.nbytes:
        raise ModelFileError(
            f"Tensor {entry.name} in {entry.file.name} is of type {entry.dtype}, {entry.nbytes:,} B; "
            "that cannot be read.",
            "Choose a bf16 or fp32 copy of the model.",
            file=entry.file.name,
        )
    tensor = torch.empty(entry.shape, dtype=dtype)
    if entry.nbytes:
        select.prefer_large_pages(tensor.data_ptr(), entry.nbytes)
        reader.read_into(entry, tensor.view(-1).view(torch.uint8).numpy().data)
    return tensor


def read_bytes(entry: TensorEntry, reader: TensorReader) -> Tensor:
    """The bytes of a tensor, uint8 [nbytes].

    Raises:
        ModelFileError: the file could not be read.
    """
    raw = torch.empty(entry.nbytes, dtype=torch.uint8)
    if entry.nbytes:
        reader.read_into(entry, raw.numpy().data)
    return raw


def unlike_plan(key: str, actual_bytes: int, planned_bytes: int) -> PlanMismatchError:
    """The error for a tensor of another size than planned."""
    return PlanMismatchError(
        f"Tensor {key} brings {actual_bytes:,} B; the plan counts {planned_bytes:,} B.",
        "Plan the start again.",
        actual_bytes=actual_bytes,
        planned_bytes=planned_bytes,
    )
