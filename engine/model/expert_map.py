"""Which bytes of which file belong where in the banks, by transformers' own rules for renaming and merging weights."""

import math
import re
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from engine.banks.bank import BankLayout, ExpertBank
from engine.checkpoint.loader import TensorReader
from engine.contract.checkpoint_headers import TensorEntry, TensorTable
from engine.contract.errors import ModelFileError, PlanMismatchError
from engine.model.experts_function import PART_OF_PARAMETER, ExpertsModule, meta_parameter

TORCH_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_EXPERT_NUMBER = re.compile(r"\.experts\.(\d+)\.")
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class PartRead:
    """`nbytes` of a tensor, from `start` on, go to one part of one expert, `part_start` bytes into it."""

    entry: TensorEntry
    start: int
    nbytes: int
    part: str
    expert: int
    part_start: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """Tensors that transformers must convert before they are a part of all experts, [E, ...]."""

    parameter: str
    keys: tuple[tuple[str, str | None], ...]  # tensor name, pattern of the converter that took it
    converter: Any  # transformers' WeightConverter; None: only another number type


@dataclass(slots=True)
class LayerMap:
    """Where one layer's bank comes from."""

    found: ExpertsModule
    reads: list[PartRead] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)

    @property
    def source_bytes(self) -> int:
        """Bytes read from the files."""
        return sum(read.nbytes for read in self.reads)


class ExpertMap:
    """The map of a whole checkpoint, layer by layer."""

    def __init__(self, model: Any, table: TensorTable, layout: BankLayout) -> None:
        """Match the tensors of the checkpoint with the experts of a stripped model.

        Raises:
            PlanMismatchError: the modules have other shapes than the plan counted.
            ModelFileError: weights of an expert are missing.
        """
        self._model = model
        self._table = table
        self._layout = layout
        self.layers = {found.layer: LayerMap(found) for found in model.experts_modules}
        self._by_path = {found.path: found.layer for found in model.experts_modules}
        for found in model.experts_modules:
            _check_shapes(found, layout)
        self.expert_keys: set[str] = set()
        self._match()
        self._check_complete()

    def fill(self, bank: ExpertBank, reader: TensorReader) -> None:
        """Read one layer from the files into its bank, in file order and without a second copy.

        A layer with conversions holds its converted weights a second time while they are copied.

        Raises:
            ModelFileError: a file ended early or could not be read.
            LoadCancelledError: the load was told to stop.
        """
        layer = self.layers[bank.layer]
        for read in sorted(layer.reads, key=lambda item: (str(item.entry.file), item.entry.offset + item.start)):
            with bank.host_part(read.part, read.expert)[read.part_start : read.part_start + read.nbytes] as target:
                reader.read_into(read.entry, target, start=read.start)
        for conversion in layer.conversions:
            values = self._convert(layer.found, conversion, reader)
            part = PART_OF_PARAMETER[conversion.parameter]
            for expert in range(self._layout.n_experts):
                view = self._layout.view(bank.record(expert), part, layer.found.shapes[conversion.parameter][1:])
                view.copy_(values[expert])

    def read_records(self, layer: int, experts: list[int], reader: TensorReader) -> dict[int, Tensor]:
        """Records of a few experts (uint8 [record.bytes]) straight from the files, for the self-test."""
        mapped = self.layers[layer]
        records = {expert: torch.zeros(self._layout.record.bytes, dtype=torch.uint8) for expert in experts}
        for read in mapped.reads:
            if read.expert in records:
                start = self._layout.part(read.part).offset + read.part_start
                target = records[read.expert].numpy().data[start : start + read.nbytes]
                reader.read_into(read.entry, target, start=read.start)
        for conversion in mapped.conversions:
            values = self._convert(mapped.found, conversion, reader)
            part = PART_OF_PARAMETER[conversion.parameter]
            shape = mapped.found.shapes[conversion.parameter][1:]
            for expert, record in records.items():
                self._layout.view(record, part, shape).copy_(values[expert])
        return records

    def _match(self) -> None:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

        rules = get_model_conversion_mapping(self._model)
        renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
        converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
        by_pattern = {pattern: rule for rule in converters for pattern in rule.source_patterns}
        full = dict.fromkeys(self._model.full_keys, True)
        prefix = self._model.base_model_prefix
        waiting: dict[tuple[int, str], list[tuple[str, str | None]]] = {}
        for key in self._table:
            target, pattern = rename_source_key(key, renamings, converters, prefix, full)
            if target not in full and key in full:
                target, pattern = rename_source_key(key, [], [], prefix, full)
            path, _, name = target.rpartition(".")
            layer = self._by_path.get(path)
            if layer is None or name not in self.layers[layer].found.shapes:
                continue
            self.expert_keys.add(key)
            if not self._direct(self.layers[layer], name, key, pattern, by_pattern.get(pattern or "")):
                waiting.setdefault((layer, name), []).append((key, pattern))
        for (layer, name), keys in waiting.items():
            ordered = tuple(sorted(keys, key=lambda item: [int(number) for number in _NUMBERS.findall(item[0])]))
            converter = by_pattern.get(ordered[0][1] or "")
            self.layers[layer].conversions.append(Conversion(name, ordered, converter))

    def _direct(self, layer: LayerMap, name: str, key: str, pattern: str | None, converter: Any) -> bool:
        """Note a tensor that can be read without conversion: one matrix of one expert, or all experts stacked."""
        entry = self._table[key]
        if TORCH_DTYPES.get(entry.dtype) != self._layout.dtype:
            return False
        part = PART_OF_PARAMETER[name]
        part_bytes = self._layout.part(part).bytes
        experts = self._layout.n_experts
        if converter is None:
            if entry.nbytes != experts * part_bytes:
                raise _unlike_plan(key, entry.nbytes, experts * part_bytes)
            for expert in range(experts):
                layer.reads.append(PartRead(entry, expert * part_bytes, part_bytes, part, expert, 0))
            return True
        operations = [(type(step).__name__, getattr(step, "dim", None)) for step in converter.operations]
        if operations not in ([("MergeModulelist", 0)], [("MergeModulelist", 0), ("Concatenate", 1)]):
            return False
        sources = converter.source_patterns if len(operations) == 2 else [pattern]
        expert = int(_EXPERT_NUMBER.findall(key)[-1])
        if entry.nbytes * len(sources) != part_bytes:
            raise _unlike_plan(key, entry.nbytes * len(sources), part_bytes)
        if expert < experts:
            layer.reads.append(PartRead(entry, 0, entry.nbytes, part, expert, sources.index(pattern) * entry.nbytes))
        return True

    def _convert(self, found: ExpertsModule, conversion: Conversion, reader: TensorReader) -> Tensor:
        if conversion.converter is None:
            return read_tensor(self._table[conversion.keys[0][0]], reader)
        values: dict[str, Any] = {}
        for key, pattern in conversion.keys:
            values.setdefault(str(pattern), []).append(read_tensor(self._table[key], reader))
        target = f"{found.path}.{conversion.parameter}"
        converter = conversion.converter
        with meta_parameter(found, conversion.parameter):
            for step in converter.operations:
                values = step.convert(
                    values,
                    source_patterns=converter.source_patterns,
                    target_patterns=converter.target_patterns,
                    full_layer_name=target,
                    model=self._model,
                    config=self._model.config,
                    missing_keys=None,
                )
        value = next(value for name, value in values.items() if target.endswith(name.lstrip("\\.")))
        return cast(Tensor, value[0] if isinstance(value, list) else value)

    def _check_complete(self) -> None:
        for number, layer in self.layers.items():
            filled: dict[tuple[str, int], int] = {}
            for read in layer.reads:
                filled[read.part, read.expert] = filled.get((read.part, read.expert), 0) + read.nbytes
            converted = {conversion.parameter for conversion in layer.conversions}
            for name in layer.found.shapes:
                part = self._layout.part(PART_OF_PARAMETER[name])
                experts = range(self._layout.n_experts)
                if name in converted:
                    continue
                if gap := [expert for expert in experts if filled.get((part.name, expert)) != part.bytes]:
                    raise ModelFileError(
                        f"The weights of layer {number} are not complete: {part.name} of expert {gap[0]} is missing.",
                        "Download the model again.",
                        layer=number,
                        missing_experts=len(gap),
                    )


def read_tensor(entry: TensorEntry, reader: TensorReader) -> Tensor:
    """One whole tensor in its own type.

    Raises:
        ModelFileError: a type the engine does not know, or the file could not be read.
    """
    dtype = TORCH_DTYPES.get(entry.dtype)
    if dtype is None or math.prod(entry.shape) * dtype.itemsize != entry.nbytes:
        raise ModelFileError(
            f"Tensor {entry.name} in {entry.file.name} is of type {entry.dtype}, {entry.nbytes:,} B; "
            "that cannot be read.",
            "Choose a bf16 or fp32 copy of the model.",
            file=entry.file.name,
        )
    tensor = torch.empty(entry.shape, dtype=dtype)
    if entry.nbytes:
        reader.read_into(entry, tensor.view(-1).view(torch.uint8).numpy().data)
    return tensor


def _check_shapes(found: ExpertsModule, layout: BankLayout) -> None:
    parts = {part.name: part.bytes for part in layout.record.parts}
    shapes = {PART_OF_PARAMETER[name]: shape for name, shape in found.shapes.items()}
    actual = {name: math.prod(shape[1:]) * layout.dtype.itemsize for name, shape in shapes.items()}
    counts = {shape[0] for shape in shapes.values()}
    if actual != parts or counts != {layout.n_experts}:
        raise PlanMismatchError(
            f"Experts of layer {found.layer} have the parts {actual} in {counts} copies; the plan counts {parts} "
            f"for {layout.n_experts} experts.",
            "Plan the start again.",
            layer=found.layer,
        )


def _unlike_plan(key: str, actual_bytes: int, planned_bytes: int) -> PlanMismatchError:
    return PlanMismatchError(
        f"Tensor {key} brings {actual_bytes:,} B; the plan counts {planned_bytes:,} B.",
        "Plan the start again.",
        actual_bytes=actual_bytes,
        planned_bytes=planned_bytes,
    )
