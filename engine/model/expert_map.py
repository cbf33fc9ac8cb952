"""Which bytes of which file belong where in the banks, by transformers' own rules for renaming and merging weights."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from engine.banks.bank import BankLayout, ExpertBank
from engine.checkpoint.loader import TensorReader
from engine.checkpoint.reader_threads import Reading
from engine.checkpoint.weight_files import TensorRead
from engine.contract.checkpoint_headers import TensorEntry, TensorTable
from engine.contract.checkpoint_packed import PackedTensor, SortedTensors
from engine.contract.errors import ModelFileError, PlanMismatchError
from engine.experts.dequant.code import NUMBER_TYPES, unreadable
from engine.experts.reference_kernel import PackedExperts
from engine.model.experts_adapters import Place
from engine.model.experts_function import PART_OF_PARAMETER, ExpertsModule, meta_parameter
from engine.model.packed_map import PackedLayer, PartRead, read_entry, unlike_plan
from engine.model.stock_names import StockNames

_EXPERT_NUMBER = re.compile(r"\.experts\.(\d+)\.")
_NUMBERS = re.compile(r"\d+")


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
    layout: BankLayout
    reads: list[PartRead] = field(default_factory=list)
    conversions: list[Conversion] = field(default_factory=list)
    packed: PackedLayer | None = None  # where the experts have to be unpacked


class ExpertMap:
    """The map of a whole checkpoint, layer by layer."""

    def __init__(
        self,
        model: Any,
        table: TensorTable,
        stored: SortedTensors,
        layouts: Mapping[int, BankLayout],
        quantised: Mapping[str, Any],
    ) -> None:
        """Match the tensors of the checkpoint with the experts of a stripped model.

        Args:
            table: all tensors by name; `stored` has the same, packed ones with what belongs to them.
            layouts: how the plan lays out each layer's bank.
            quantised: `quantization_config` of config.json; {} without one.

        Raises:
            PlanMismatchError: the modules have other layers or shapes than the plan counted.
            UnsupportedModelError: weights are packed in a way the engine does not compute.
            ModelFileError: weights of an expert are missing.
        """
        self._model = model
        self._table = table
        self._stored = stored
        modules = {found.layer: found for found in model.experts_modules}
        if sorted(modules) != sorted(layouts):
            raise PlanMismatchError(
                f"The model has experts in layers {sorted(modules)}; the plan counts {sorted(layouts)}.",
                "Plan the start again.",
            )
        self.layers = {layer: _layer_map(found, layouts[layer], quantised) for layer, found in modules.items()}
        self._by_name = {
            f"{found.path}.{name}": (found.layer, place)
            for found in model.experts_modules
            for name, place in found.places.items()
        }
        self._dense: dict[str, TensorEntry] = {}  # weights of the model that are stored as they are used
        self._match()
        self._check_complete()

    def start(self, bank: ExpertBank, reader: TensorReader) -> Reading:
        """Begin to read one layer from the files into its bank, in file order and without a second copy."""
        reads = in_file_order(self.layers[bank.layer].reads)
        return reader.start(
            TensorRead(
                read.entry,
                read.start,
                bank.host_part(read.part, read.expert)[read.part_start : read.part_start + read.nbytes],
            )
            for read in reads
        )

    def finish(self, bank: ExpertBank, reading: Reading, reader: TensorReader) -> None:
        """Wait for `start` and add what has to be converted: that is in memory a second time while it is copied.

        Raises:
            ModelFileError: a file ended early or could not be read.
            LoadCancelledError: the load was told to stop.
        """
        reader.wait(reading)
        layer = self.layers[bank.layer]
        for conversion in layer.conversions:
            values = self._convert(layer.found, conversion, reader)
            part = PART_OF_PARAMETER[conversion.parameter]
            for expert in range(layer.layout.n_experts):
                view = layer.layout.view(bank.record(expert), part, layer.found.shapes[conversion.parameter][1:])
                view.copy_(values[expert])

    def read_packed(self, layer: int, reader: TensorReader) -> PackedExperts | None:
        """How to unpack a layer's records; None: they are plain numbers.

        Raises:
            ModelFileError: a scale is missing, or the file could not be read.
        """
        packed = self.layers[layer].packed
        return None if packed is None else packed.read_wholes(reader)

    def read_records(self, layer: int, experts: list[int], reader: TensorReader) -> dict[int, Tensor]:
        """Records of a few experts (uint8 [record.bytes]) straight from the files, for the self-test."""
        mapped = self.layers[layer]
        layout = mapped.layout
        records = {expert: torch.zeros(layout.record.bytes, dtype=torch.uint8) for expert in experts}
        for read in mapped.reads:
            if read.expert in records:
                start = layout.part(read.part).offset + read.part_start
                target = records[read.expert].numpy().data[start : start + read.nbytes]
                reader.read_into(read.entry, target, start=read.start)
        for conversion in mapped.conversions:
            values = self._convert(mapped.found, conversion, reader)
            part = PART_OF_PARAMETER[conversion.parameter]
            shape = mapped.found.shapes[conversion.parameter][1:]
            for expert, record in records.items():
                layout.view(record, part, shape).copy_(values[expert])
        return records

    def read_dense(self, name: str, reader: TensorReader) -> Tensor | None:
        """A weight of the model that is no expert's, straight from the files; None: it is not stored as it is used."""
        entry = self._dense.get(name)
        return None if entry is None else read_entry(entry, reader)

    def _match(self) -> None:
        names = StockNames(self._model)
        by_pattern = names.converters
        waiting: dict[tuple[int, str], list[tuple[str, str | None]]] = {}
        for key, tensor in (self._stored.plain | self._stored.packed).items():
            target, pattern = names.target(key)
            if (known := self._by_name.get(target)) is None:
                if isinstance(tensor, TensorEntry) and by_pattern.get(pattern or "") is None:
                    self._dense[target] = tensor
                continue
            layer, place = known
            mapped, name, converter = self.layers[layer], place.parameter, by_pattern.get(pattern or "")
            if mapped.packed is not None and not name.endswith("_bias"):
                _add_packed(mapped.packed, place, key, tensor, pattern, converter)
            elif isinstance(tensor, PackedTensor):
                raise unlike_plan(tensor.weight.name, tensor.weight.nbytes, 0)
            elif not self._direct(mapped, place, key, pattern, converter):
                waiting.setdefault((layer, name), []).append((key, pattern))
        for (layer, name), keys in waiting.items():
            ordered = tuple(sorted(keys, key=lambda item: [int(number) for number in _NUMBERS.findall(item[0])]))
            converter = by_pattern.get(ordered[0][1] or "")
            self.layers[layer].conversions.append(Conversion(name, ordered, converter))
        for mapped in self.layers.values():
            if mapped.packed is not None:
                mapped.packed.lay_out()
                mapped.reads += mapped.packed.reads

    def _direct(self, layer: LayerMap, place: Place, key: str, pattern: str | None, converter: Any) -> bool:
        """Note a tensor that can be read without conversion: one matrix of one expert, or of all experts stacked."""
        entry = self._table[key]
        if layer.packed is not None:
            layer.packed.bias_dtype = NUMBER_TYPES.get(entry.dtype)
        elif NUMBER_TYPES.get(entry.dtype) != layer.layout.dtype:
            return False
        part = PART_OF_PARAMETER[place.parameter]
        part_bytes = layer.layout.part(part).bytes
        experts = layer.layout.n_experts
        if (stacked := _stacked(place, pattern, converter)) is not None:
            size = part_bytes // stacked.count
            if entry.nbytes != experts * size:
                raise unlike_plan(key, entry.nbytes, experts * size)
            _check_sizes(entry, layer.found.shapes[place.parameter], 1, stacked.count)
            for expert in range(experts):
                layer.reads.append(PartRead(entry, expert * size, size, part, expert, stacked.number * size))
            return True
        sources = _merged(converter, pattern)
        if sources is None:
            return False
        expert = int(_EXPERT_NUMBER.findall(key)[-1])
        if expert >= experts:  # idle, or of another bank
            return True
        if entry.nbytes * len(sources) != part_bytes:
            raise unlike_plan(key, entry.nbytes * len(sources), part_bytes)
        _check_sizes(entry, layer.found.shapes[place.parameter][1:], 0, len(sources))
        layer.reads.append(PartRead(entry, 0, entry.nbytes, part, expert, sources.index(pattern) * entry.nbytes))
        return True

    def _convert(self, found: ExpertsModule, conversion: Conversion, reader: TensorReader) -> Tensor:
        if conversion.converter is None:
            return read_entry(self._table[conversion.keys[0][0]], reader)
        values: dict[str, Any] = {}
        for key, pattern in conversion.keys:
            values.setdefault(str(pattern), []).append(read_entry(self._table[key], reader))
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
            converted = {PART_OF_PARAMETER[conversion.parameter] for conversion in layer.conversions}
            for part in layer.layout.record.parts:
                if part.name in converted:
                    continue
                experts = range(layer.layout.n_experts)
                if gap := [expert for expert in experts if filled.get((part.name, expert)) != part.bytes]:
                    raise ModelFileError(
                        f"The weights of layer {number} are not complete: {part.name} of expert {gap[0]} is missing.",
                        "Download the model again.",
                        layer=number,
                        missing_experts=len(gap),
                    )


def in_file_order(reads: Iterable[PartRead]) -> list[PartRead]:
    """As a disk likes it."""
    return sorted(reads, key=lambda item: (str(item.entry.file), item.entry.offset + item.start))


def _check_sizes(entry: TensorEntry, whole: Sequence[int], axis: int, parts: int) -> None:
    """Refuse a matrix that lies the other way round, which has as many bytes; `entry` is one part of `whole`.

    Raises:
        ModelFileError: it has other sizes than the model.
    """
    wanted = tuple(size // parts if place == axis else size for place, size in enumerate(whole))
    if len(entry.shape) == len(wanted) and entry.shape != wanted:
        raise ModelFileError(
            f"The weight {entry.name} is {list(entry.shape)}; the model needs {list(wanted)}.",
            "Download the model again.",
            file=entry.file.name,
        )


def _layer_map(found: ExpertsModule, layout: BankLayout, quantised: Mapping[str, Any]) -> LayerMap:
    _check_shapes(found, layout)
    if layout.dtype is not None:
        return LayerMap(found, layout)
    transposed = bool(found.module.is_transposed)
    packed = PackedLayer(found.layer, layout, transposed=transposed, quantised=quantised)
    return LayerMap(found, layout, packed=packed)


def _add_packed(
    layer: PackedLayer, place: Place, key: str, tensor: TensorEntry | PackedTensor, pattern: str | None, converter: Any
) -> None:
    """Note a matrix of one expert or of all, in a layer whose experts are unpacked.

    Raises:
        UnsupportedModelError: transformers would have to convert it.
    """
    packed = tensor if isinstance(tensor, PackedTensor) else PackedTensor(key, tensor)
    part = PART_OF_PARAMETER[place.parameter]
    if (stacked := _stacked(place, pattern, converter)) is not None:
        layer.add(part, stacked.number, stacked.count, None, packed)
        return
    sources = _merged(converter, pattern)
    if sources is None:
        raise unreadable(packed)
    layer.add(part, sources.index(pattern), len(sources), int(_EXPERT_NUMBER.findall(key)[-1]), packed)


def _stacked(place: Place, pattern: str | None, converter: Any) -> Place | None:
    """Where a tensor with one matrix of all experts goes; None: it has those of one expert, or must be converted."""
    if converter is None:
        return place
    if [(type(step).__name__, getattr(step, "dim", None)) for step in converter.operations] != [("Concatenate", 1)]:
        return None
    sources = list(converter.source_patterns)
    return Place(place.parameter, sources.index(pattern), len(sources))


def _merged(converter: Any, pattern: str | None) -> list[str | None] | None:
    """Sources of a converter that only puts experts, and matrices below each other, into one; None: it does more."""
    operations = [(type(step).__name__, getattr(step, "dim", None)) for step in converter.operations]
    fused = ([("MergeModulelist", 0), ("Concatenate", 1)], [("ErnieFuseAndSplitTextVisionExperts", None)])
    if operations in fused:  # the latter goes on with a second bank, whose numbers are beyond the last expert
        return list(converter.source_patterns)
    return [pattern] if operations == [("MergeModulelist", 0)] else None


def _check_shapes(found: ExpertsModule, layout: BankLayout) -> None:
    """Compare a module with the plan: which matrices and biases, how many numbers in each, how many experts."""
    experts = layout.experts
    up, rows = ("gate_up", 2 * experts.inner) if experts.has_gate else ("up", experts.inner)
    planned = {up: rows * experts.width, "down": experts.width * experts.inner}
    if experts.has_bias:
        planned |= {f"{up}_bias": rows, "down_bias": experts.width}
    actual = {PART_OF_PARAMETER[name]: math.prod(shape[1:]) for name, shape in found.shapes.items()}
    counts = {shape[0] for shape in found.shapes.values()}
    if actual != planned or counts != {layout.n_experts}:
        raise PlanMismatchError(
            f"Experts of layer {found.layer} have {actual} numbers in {counts} copies; the plan counts {planned} "
            f"for {layout.n_experts} experts.",
            "Plan the start again.",
            layer=found.layer,
        )
