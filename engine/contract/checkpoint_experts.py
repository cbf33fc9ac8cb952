"""How the routed experts of each layer are stored, from the types and sizes of their tensors.

The number of experts and the two widths come from config.json; what the tensors hold must follow from them and from
one layout of packed weights and scales, to the byte. What does not is refused with both byte counts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.checkpoint_names import ExpertName, Matrix, Purpose, expert_name
from engine.contract.errors import CannotEstimateError, ModelFileError
from engine.contract.formats import (
    ExpertStorage,
    MatrixStorage,
    WeightFormat,
    alike,
    int_groups,
    usual_storage,
)
from engine.contract.shape import ExpertShape

_PLAIN = {"F32": WeightFormat.FP32, "BF16": WeightFormat.BF16, "F16": WeightFormat.FP16}
_ITEM_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U8": 1, "I8": 1}
_FP8 = frozenset({"F8_E4M3", "F8_E5M2"})
_EXPONENTS = frozenset({"U8", "F8_E8M0"})  # scales that are powers of two
_GROUPS = (16, 32, 64, 128, 256, 512, 1024)
_INTS = (WeightFormat.INT4, WeightFormat.INT8, WeightFormat.INT3, WeightFormat.INT2)
_KEPT: tuple[Purpose, ...] = ("weight", "scale", "zero", "order")

FILES_FIX = "Download config.json and the weight files again; they do not belong together."
FORMAT_FIX = "Choose a copy of this model in bf16, fp8, NVFP4, MXFP4, GPTQ, AWQ or GGUF."


@dataclass(slots=True)
class StoredExperts:
    """What the weight files say about the routed experts."""

    storages: tuple[ExpertStorage, ...]  # one per MoE layer
    beside_bytes: int = 0  # scales of whole matrices; they stay with the dense weights
    assumptions: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Tensors:
    """Tensors of one matrix and purpose in one layer: one for all experts, or one for each."""

    dtype: str
    nbytes: int = 0
    values: int = 0
    inverse: bool = False


_Layer = dict[tuple[Matrix, Purpose], _Tensors]


def stored_experts(experts: ExpertShape, layers: Mapping[int, Sequence[TensorEntry]]) -> StoredExperts:
    """Read the layout of every layer; `layers` maps the number of each MoE layer to its expert tensors.

    Raises:
        ModelFileError: experts are missing, or a layer has other bytes than its shape explains.
        CannotEstimateError: a layout that is not known.
    """
    found = StoredExperts(())
    known: dict[tuple[tuple[tuple[str, str], tuple[str, int, int, bool]], ...], ExpertStorage] = {}
    storages = []
    for layer in sorted(layers):
        tensors = _sorted_out(experts, layer, layers[layer])
        key = tuple(
            (what, (held.dtype, held.nbytes, held.values, held.inverse)) for what, held in sorted(tensors.items())
        )
        if key not in known:
            known[key] = _LayerStorage(experts, layer, tensors).read()
        storages.append(known[key])
        found.beside_bytes += _beside(experts, tensors, known[key])
        if not experts.has_bias and any(purpose == "bias" for _, purpose in tensors):
            note = "biases of routed experts in the weight files are not used by this model type"
            if note not in found.assumptions:
                found.assumptions.append(note)
    found.storages = tuple(storages)
    return found


def main_format(storages: Iterable[ExpertStorage]) -> WeightFormat:
    """The format most matrices have."""
    return Counter(form for storage in storages for form in storage.formats).most_common(1)[0][0]


def shortest(storages: tuple[ExpertStorage, ...]) -> tuple[ExpertStorage, ...]:
    """The same as `ModelShape.storages` holds it: one if all are alike, none if that is the usual layout."""
    if len(set(storages)) > 1:
        return storages
    first = storages[:1]
    return () if first == (alike(usual_storage(first[0].up.format)),) else first


def _sorted_out(experts: ExpertShape, layer: int, entries: Sequence[TensorEntry]) -> _Layer:
    """Sums by matrix and purpose, each checked to be complete."""
    groups: dict[tuple[Matrix, Purpose], list[tuple[int | None, TensorEntry]]] = defaultdict(list)
    for entry in entries:
        name = expert_name(entry.name)
        if name is None or name.matrix is None or name.purpose is None:
            raise CannotEstimateError(
                f"Tensor {entry.name:.120} belongs to the routed experts, but what it holds is not known.",
                FORMAT_FIX,
                tensor=entry.name,
            )
        groups[_matrix(experts, name), name.purpose].append((name.expert, entry))
    return {what: _together(experts, layer, what, group) for what, group in groups.items()}


def _matrix(experts: ExpertShape, name: ExpertName) -> Matrix:
    assert name.matrix is not None
    return "up" if name.matrix == "gate_up" and not experts.has_gate else name.matrix


def _together(
    experts: ExpertShape, layer: int, what: tuple[Matrix, Purpose], group: list[tuple[int | None, TensorEntry]]
) -> _Tensors:
    first = group[0][1]
    numbers = Counter(number for number, _ in group)
    if set(numbers) != {None} or len(group) != 1:
        absent = next((number for number in range(experts.n_experts) if not numbers[number]), None)
        if absent is not None or len(group) != experts.n_experts:
            seen = len(group)
            raise ModelFileError(
                f"Layer {layer} has {seen:,} tensors with the {what[1]} of {what[0]}; config.json describes"
                f" {experts.n_experts:,} experts" + ("." if absent is None else f", and expert {absent} has none."),
                FILES_FIX,
                layer=layer,
                experts_in_config=experts.n_experts,
                experts_in_files=seen,
            )
    odd = next((entry for _, entry in group if (entry.dtype, entry.nbytes) != (first.dtype, first.nbytes)), None)
    if odd is not None:
        raise CannotEstimateError(
            f"Experts of layer {layer} are stored differently: {first.name:.120} has {first.nbytes:,} B of type"
            f" {first.dtype:.20}, {odd.name:.120} {odd.nbytes:,} B of type {odd.dtype:.20}.",
            FORMAT_FIX,
            layer=layer,
        )
    count = len(group)
    return _Tensors(first.dtype, count * first.nbytes, count * first.values, first.name.endswith("_scale_inv"))


def _beside(experts: ExpertShape, tensors: _Layer, storage: ExpertStorage) -> int:
    """Bytes of scales that hold for a whole matrix."""
    by_matrix: dict[Matrix, MatrixStorage] = {
        "gate": storage.gate, "up": storage.up, "gate_up": storage.up, "down": storage.down
    }  # fmt: skip
    return sum(
        held.nbytes
        for (matrix, purpose), held in tensors.items()
        if purpose == "whole scale" or (purpose == "scale" and not by_matrix[matrix].scale_bytes)
    )


class _LayerStorage:
    """Explains the bytes of one layer."""

    def __init__(self, experts: ExpertShape, layer: int, tensors: _Layer) -> None:
        self._experts = experts
        self._layer = layer
        self._tensors = tensors

    def read(self) -> ExpertStorage:
        down = self._storage("down", self._experts.width, self._experts.inner, 1)
        if ("gate_up", "weight") in self._tensors:
            gate = up = self._storage("gate_up", self._experts.inner, self._experts.width, 2)
        else:
            up = self._storage("up", self._experts.inner, self._experts.width, 1)
            gate = self._storage("gate", self._experts.inner, self._experts.width, 1) if self._experts.has_gate else up
        bias_bytes = self._bias_bytes() or alike(up).bias_bytes
        return ExpertStorage(gate=gate, up=up, down=down, bias_bytes=bias_bytes)

    def _storage(self, matrix: Matrix, rows: int, columns: int, count: int) -> MatrixStorage:
        """The layout of a matrix [rows, columns] that each expert has `count` times."""
        weights = self._tensors.get((matrix, "weight"))
        if weights is None:
            raise ModelFileError(
                f"The weight files have no {matrix} weights of the routed experts of layer {self._layer}.",
                FILES_FIX,
                layer=self._layer,
            )
        matrices = self._experts.n_experts * count
        held = sum(
            tensors.nbytes
            for (its_matrix, purpose), tensors in self._tensors.items()
            if its_matrix == matrix and purpose in _KEPT
        )
        scales = self._tensors.get((matrix, "scale"))
        if (plain := _PLAIN.get(weights.dtype)) and scales is None:
            candidates: Iterable[MatrixStorage] = (usual_storage(plain),)
        else:
            candidates = self._candidates(matrix, weights, scales, (rows, columns, matrices))
        declared = None
        for storage in candidates:
            declared = matrices * storage.matrix_bytes(rows, columns)
            one_each = scales is not None and not storage.scale_bytes and scales.values <= matrices
            if declared + (scales.nbytes if scales is not None and one_each else 0) == held:
                return storage
        if declared is None:
            raise self._unknown(matrix)
        raise ModelFileError(
            f"The routed experts of layer {self._layer} take {held:,} B for {matrix} in the weight files;"
            f" config.json describes {declared:,} B.",
            FILES_FIX,
            layer=self._layer,
            declared_bytes=declared,
            actual_bytes=held,
        )

    def _candidates(
        self, matrix: Matrix, weights: _Tensors, scales: _Tensors | None, size: tuple[int, int, int]
    ) -> list[MatrixStorage]:
        """Layouts that the number types allow, likeliest first."""
        rows, columns, matrices = size
        values = rows * columns * matrices
        scale_bytes = _ITEM_BYTES.get(scales.dtype, 0) if scales is not None else 0
        scale_type = scales.dtype if scales is not None else ""
        if scales is not None and not scale_bytes:
            return []
        if weights.dtype in _FP8:
            return _fp8(scales, scale_bytes)
        if weights.dtype in ("U8", "I8", "F4") and scale_type in ("F8_E4M3", *_EXPONENTS) and weights.nbytes < values:
            four = WeightFormat.NVFP4 if scale_type == "F8_E4M3" else WeightFormat.MXFP4
            return [usual_storage(four)]
        if scales is None or scale_type in _EXPONENTS or scale_type in _FP8:
            return []
        per_row = scales.values // (rows * matrices)
        group = 0 if per_row <= 1 else next((size for size in _GROUPS if -(-columns // size) == per_row), 0)
        zeros = (matrix, "zero") in self._tensors
        if weights.dtype == "I32":
            order = 4 if (matrix, "order") in self._tensors else 0
            return [
                int_groups(form, group, scale_bytes=scale_bytes, zeros=zeros, order_bytes=order)
                for form in _INTS
                if matrices * int_groups(form, group).weight_bytes(rows, columns) == weights.nbytes
            ]
        if weights.dtype == "I8":
            return [
                MatrixStorage(
                    format=WeightFormat.INT8,
                    block_bytes=1,
                    tile_columns=group,
                    scale_bytes=scale_bytes,
                    zero_bits=8 if zeros else 0,
                )
            ]
        return []

    def _bias_bytes(self) -> int | None:
        """Bytes of one bias value; None where experts have no biases.

        Raises:
            ModelFileError: biases are missing or have another length.
        """
        if not self._experts.has_bias:
            return None
        held = [tensors for (_, purpose), tensors in self._tensors.items() if purpose == "bias"]
        rows_up = self._experts.inner * (2 if self._experts.has_gate else 1)
        declared = self._experts.n_experts * (rows_up + self._experts.width)
        actual = sum(tensors.values for tensors in held)
        kinds = {tensors.dtype for tensors in held}
        if actual != declared or len(kinds) != 1:
            raise ModelFileError(
                f"The biases of the routed experts of layer {self._layer} are {actual:,} numbers in the weight files;"
                f" config.json describes {declared:,}.",
                FILES_FIX,
                layer=self._layer,
            )
        size = _ITEM_BYTES.get(held[0].dtype)
        if size is None or held[0].nbytes != held[0].values * size:
            raise self._unknown("bias")
        return size

    def _unknown(self, what: str) -> CannotEstimateError:
        kinds = " and ".join(sorted({tensors.dtype[:20] for tensors in self._tensors.values()}))
        return CannotEstimateError(
            f"The routed experts of layer {self._layer} are stored as {kinds} ({what}); their size in memory is not"
            " known.",
            FORMAT_FIX,
            stored_as=kinds,
        )


def _fp8(scales: _Tensors | None, scale_bytes: int) -> list[MatrixStorage]:
    """One scale a matrix, a row, a tile of 128 × 128, or a group of 32 columns."""
    whole = usual_storage(WeightFormat.FP8)
    if scales is None:
        return [whole]
    tiles = usual_storage(WeightFormat.FP8_BLOCK).model_copy(update={"scale_bytes": scale_bytes})
    rows = usual_storage(WeightFormat.FP8_CHANNEL).model_copy(update={"scale_bytes": scale_bytes})
    if scales.inverse:
        return [tiles, rows, whole]
    if scales.dtype in _EXPONENTS:
        return [usual_storage(WeightFormat.MXFP8), tiles, rows]
    return [whole, rows, tiles]
