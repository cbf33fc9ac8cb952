"""Which bytes of a GGUF file belong where in the banks; every block stays as it is stored.

Files have the matrices of all experts of a layer stacked, [E, rows, columns], gate and up apart and upright. Where the
model's own module has gate and up rows in turns or transposed (gpt-oss), packed records keep the order of the file and
the kernel unpacks into the module's; plain numbers and biases are brought into it while they are read.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from engine.banks.bank import BankLayout, ExpertBank
from engine.checkpoint.loader import TensorReader
from engine.checkpoint.reader_threads import Reading
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.checkpoint_packed import SortedTensors
from engine.contract.errors import PlanMismatchError
from engine.contract.gguf_weights import GgufWeights
from engine.experts.dequant.code import NUMBER_TYPES, MatrixCode
from engine.experts.dequant.gguf import GGUF_TYPES
from engine.experts.reference_kernel import PackedExperts, Side, StoredMatrix
from engine.model.expert_map import ExpertMap, LayerMap
from engine.model.packed_map import PartRead, read_entry, unlike_plan

_NUMBER = re.compile(r"\.(\d{1,9})\.")  # of an expert that has a tensor of its own


@dataclass(frozen=True, slots=True)
class _Turned:
    """A part of records that is put together from parts of tensors: their numbers in turns, then perhaps transposed."""

    part: str
    sources: tuple[tuple[TensorEntry, ...], ...]  # one or two, each stacked or one entry for each expert
    rows: int  # of each source; 0: a bias
    in_turns: bool
    transposed: bool


class GgufExpertMap(ExpertMap):
    """The map of a GGUF file, layer by layer."""

    def __init__(self, model: Any, weights: GgufWeights, layouts: Mapping[int, BankLayout]) -> None:
        """Match the expert tensors of a file with the experts of a stripped model.

        Raises:
            PlanMismatchError: the modules have other layers or shapes than the plan counted, or the file has.
            ModelFileError: weights of an expert are missing.
        """
        self._weights = weights
        self._packed: dict[int, PackedExperts] = {}
        self._turned: dict[int, list[_Turned]] = {}
        super().__init__(model, {}, SortedTensors({}, {}), layouts, {})

    @override
    def finish(self, bank: ExpertBank, reading: Reading, reader: TensorReader) -> None:
        super().finish(bank, reading, reader)
        for turned in self._turned[bank.layer]:
            for expert in range(bank.layout.n_experts):
                bank.layout.raw(bank.record(expert), turned.part).copy_(self._read(turned, bank.layout, expert, reader))

    @override
    def read_packed(self, layer: int, reader: TensorReader) -> PackedExperts | None:
        packed = self._packed.get(layer)
        if packed is None or not any(kind == "scale" for _, kind in self._weights.experts[layer]):
            return packed
        return replace(packed, wholes=tuple(self._scales(layer, name, reader) for name in _names(self.layers[layer])))

    def _scales(self, layer: int, name: str, reader: TensorReader) -> Tensor | None:
        """One scale for each expert's matrix, [E]; None: there is none."""
        found, n_experts = self._weights.experts[layer], self.layers[layer].layout.n_experts
        fused = name != "down" and ("gate_up", "weight") in found
        entries = found.get(("gate_up" if fused else name, "scale"))
        if entries is None:
            return None
        values = torch.cat([read_entry(entry, reader).flatten() for entry in _in_order(entries)])
        if len(values) != n_experts:
            raise unlike_plan(entries[0].name, values.nbytes, n_experts * values.itemsize)
        return values

    @override
    def read_records(self, layer: int, experts: list[int], reader: TensorReader) -> dict[int, Tensor]:
        records = super().read_records(layer, experts, reader)
        layout = self.layers[layer].layout
        for turned in self._turned[layer]:
            for expert, record in records.items():
                layout.raw(record, turned.part).copy_(self._read(turned, layout, expert, reader))
        return records

    @override
    def _match(self) -> None:
        for number, layer in self.layers.items():
            self._turned[number] = []
            module = layer.found.module
            in_turns, transposed = not module.is_concatenated, bool(module.is_transposed)
            found = self._weights.experts[number]
            if (in_turns or layer.layout.experts.has_bias) and not {("gate", "weight"), ("up", "weight")} <= set(found):
                raise PlanMismatchError(
                    f"Gate and up weights of layer {number} are one tensor; that is not known for experts with biases.",
                    "Choose a GGUF file made with a newer or older llama.cpp.",
                )
            matrices = list(self._matrices(layer, found, in_turns=in_turns))
            if layer.layout.dtype is None:
                biases = [entry for (_, kind), entries in found.items() if kind == "bias" for entry in entries]
                bias = NUMBER_TYPES[biases[0].dtype] if layer.layout.experts.has_bias else None
                self._packed[number] = PackedExperts(tuple(matrices), (None,) * len(matrices), bias, transposed)
            elif in_turns or transposed:
                layer.reads.clear()
                self._turned[number] += _turned_matrices(layer.layout, found, in_turns, transposed)
            if layer.layout.experts.has_bias:
                self._turned[number] += _turned_biases(layer.layout, found, in_turns)

    @override
    def _check_complete(self) -> None:
        """Every read was checked against the plan when it was noted, and none is optional."""

    def _matrices(
        self, layer: LayerMap, found: Mapping[tuple[str, str], list[TensorEntry]], *, in_turns: bool
    ) -> Iterator[StoredMatrix]:
        """Note the reads of a layer's matrices, and say what they are."""
        layout, experts = layer.layout, layer.layout.experts
        for name in _names(layer):
            fused = name != "down" and ("gate_up", "weight") in found
            entries = _in_order(found["gate_up" if fused else name, "weight"])
            side: Side = "down" if name == "down" else "up"
            rows, columns = (experts.width, experts.inner) if name == "down" else (experts.inner, experts.width)
            second = experts.has_gate and name == "up"
            part, place, count = name, 0, 1
            if name != "down" and not layout.has(name):
                part, place, count = "gate_up", int(second), 2
            size = layout.part(part).bytes // count
            for expert in range(layout.n_experts):
                entry, start, whole = _of_expert(entries, expert, layout.n_experts)
                if fused:
                    start, whole = start + int(second) * (whole // 2), whole // 2
                if whole != size:
                    raise unlike_plan(entry.name, whole * layout.n_experts, size * layout.n_experts)
                layer.reads.append(PartRead(entry, start, size, part, expert, place * size))
            kind = entries[0].dtype
            code = MatrixCode("gguf" if kind in GGUF_TYPES else "plain", rows, columns, kind)
            first, step = (int(second), 2) if in_turns and side == "up" else (rows * int(second), 1)
            yield StoredMatrix(code, side, part, place, count, first, step)

    def _read(self, turned: _Turned, layout: BankLayout, expert: int, reader: TensorReader) -> Tensor:
        """The bytes of one part of one expert, uint8 [part bytes]."""
        values = []
        for entries in turned.sources:
            entry, start, size = _of_expert(entries, expert, layout.n_experts)
            raw = torch.empty(size, dtype=torch.uint8)
            reader.read_into(entry, raw.numpy().data, start=start)
            numbers = raw.view(NUMBER_TYPES[entry.dtype])
            values.append(numbers.view(turned.rows, -1) if turned.rows else numbers[:, None])
        value = torch.stack(values, dim=1).flatten(0, 1) if turned.in_turns else torch.cat(values)
        if turned.transposed:
            value = value.T.contiguous()
        found = value.view(-1).view(torch.uint8)
        planned = layout.part(turned.part).bytes
        if found.numel() != planned:
            raise PlanMismatchError(
                f"{turned.part} of an expert brings {found.numel():,} B; the plan counts {planned:,} B.",
                "Plan the start again.",
                planned_bytes=planned,
                actual_bytes=found.numel(),
            )
        return found


def _names(layer: LayerMap) -> tuple[str, ...]:
    """The matrices of an expert, in the order in which they are unpacked."""
    return ("gate", "up", "down") if layer.layout.experts.has_gate else ("up", "down")


def _turned_matrices(
    layout: BankLayout, found: Mapping[tuple[str, str], list[TensorEntry]], in_turns: bool, transposed: bool
) -> list[_Turned]:
    """Plain matrices of a module that has them in another order than the file."""
    inner, width = layout.experts.inner, layout.experts.width
    up = tuple(_in_order(found[name, "weight"]) for name in ("gate", "up"))
    down = (_in_order(found["down", "weight"]),)
    return [_Turned("gate_up", up, inner, in_turns, transposed), _Turned("down", down, width, False, transposed)]


def _turned_biases(
    layout: BankLayout, found: Mapping[tuple[str, str], list[TensorEntry]], in_turns: bool
) -> list[_Turned]:
    up = tuple(_in_order(found[name, "bias"]) for name in ("gate", "up"))
    down = (_in_order(found["down", "bias"]),)
    return [_Turned("gate_up_bias", up, 0, in_turns, False), _Turned("down_bias", down, 0, False, False)]


def _in_order(entries: list[TensorEntry]) -> tuple[TensorEntry, ...]:
    """By the number of the expert, where each has a tensor of its own."""
    if len(entries) == 1:
        return tuple(entries)
    return tuple(sorted(entries, key=lambda entry: int(_NUMBER.findall(entry.name)[-1])))


def _of_expert(entries: tuple[TensorEntry, ...], expert: int, n_experts: int) -> tuple[TensorEntry, int, int]:
    """Where an expert's part of a matrix begins, and its bytes."""
    if len(entries) == 1:
        size = entries[0].nbytes // n_experts
        return entries[0], expert * size, size
    return entries[expert], 0, entries[expert].nbytes
