"""Routed experts and other weights of a GGUF file: types may differ from layer to layer and from matrix to matrix."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from engine.contract.checkpoint_experts import FILES_FIX
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import CannotEstimateError, ModelFileError
from engine.contract.formats import ExpertStorage, MatrixStorage, WeightFormat, usual_storage
from engine.contract.gguf_headers import GGUF_TYPES, GgufModel
from engine.contract.gguf_names import transformers_name
from engine.contract.shape import ExpertShape

_LAYER = re.compile(r"blk\.(\d{1,9})\.")
# blk.0.ffn_up_exps.weight | older: blk.0.ffn_up.7.weight
_EXPERT = re.compile(r"blk\.(\d{1,9})\.ffn_(gate_up|gate|up|down)(?:_exps|\.(\d{1,9}))\.(weight|bias|scale)")
_BLOCKS = {name: (weights, size) for name, weights, size in GGUF_TYPES.values()}
_FORMATS = {form.value.upper(): form for form in WeightFormat} | {"F32": WeightFormat.FP32, "F16": WeightFormat.FP16}
_FIX = "Choose a GGUF file with other types."

_What = tuple[str, Literal["weight", "bias"] | str]


@dataclass(slots=True)
class GgufWeights:
    """What the tensor table says."""

    experts: dict[int, dict[_What, list[TensorEntry]]] = field(default_factory=dict)  # by layer
    dense: list[TensorEntry] = field(default_factory=list)
    scales: dict[str, TensorEntry] = field(default_factory=dict)  # of whole dense matrices (NVFP4), by their names

    @property
    def beside_bytes(self) -> int:
        """Bytes of scales that hold for a whole matrix of an expert; they stay with the dense weights."""
        layers = self.experts.values()
        return sum(
            entry.nbytes for found in layers for (_, kind), own in found.items() if kind == "scale" for entry in own
        )

    @property
    def dense_format(self) -> WeightFormat:
        """What the dense part becomes in memory: fp32 where all its matrices are stored so, else bf16."""
        kinds = {entry.dtype for entry in self.dense if len(entry.shape) > 1}
        return WeightFormat.FP32 if kinds == {"F32"} else WeightFormat.BF16

    def dense_bytes(self, arch: str, fp32_names: tuple[str, ...]) -> int:
        """Bytes of the dense part in memory: one type for all numbers but those that transformers keeps in fp32."""

        def value_bytes(name: str) -> int:
            target = transformers_name(arch, name) or name
            return 4 if any(part in target for part in fp32_names) else usual

        usual = 4 if self.dense_format is WeightFormat.FP32 else 2
        return sum(entry.values * value_bytes(entry.name) for entry in self.dense)


def sort_tensors(model: GgufModel, layers: int) -> GgufWeights:
    """Tell routed experts from what every token uses; layers beyond the last one only guess ahead and are left out."""
    found = GgufWeights()
    experts: dict[int, dict[_What, list[TensorEntry]]] = defaultdict(lambda: defaultdict(list))
    for entry in model.tensors.values():
        layer = _LAYER.match(entry.name)
        if layer is not None and int(layer[1]) >= layers:
            continue
        base, _, ending = entry.name.rpartition(".")
        if _is_left_out(model, base, ending):
            continue
        if match := _EXPERT.fullmatch(entry.name):
            experts[int(match[1])][match[2], match[4]].append(entry)
        elif ending == "scale" and f"{base}.weight" in model.tensors:
            found.scales[f"{base}.weight"] = entry
        else:
            found.dense.append(entry)
    found.experts = dict(experts)
    return found


def _is_left_out(model: GgufModel, base: str, ending: str) -> bool:
    """Scales of activations, which are not quantised here, and latents that are there once more in two halves."""
    if base.endswith((".attn_k_b", ".attn_v_b")):
        return f"{base.rpartition('.')[0]}.attn_kv_b.weight" in model.tensors
    return ending == "input_scale" and f"{base}.weight" in model.tensors


def layer_storage(experts: ExpertShape, layer: int, found: dict[_What, list[TensorEntry]]) -> ExpertStorage:
    """How one layer's experts are stored.

    Raises:
        ModelFileError: a matrix is missing or has another shape than the metadata says.
        CannotEstimateError: a type experts are not stored in.
    """
    width, inner, factor = experts.width, experts.inner, 2 if experts.has_gate else 1
    down = _matrix(experts, layer, "down", found, (inner, width))
    if ("gate_up", "weight") in found:
        gate = up = _matrix(experts, layer, "gate_up", found, (width, factor * inner))
    else:
        up = _matrix(experts, layer, "up", found, (width, inner))
        gate = _matrix(experts, layer, "gate", found, (width, inner)) if experts.has_gate else up
    biases = [entry for (_, kind), entries in found.items() if kind == "bias" for entry in entries]
    bias_bytes = 2
    if experts.has_bias:
        declared = experts.n_experts * (factor * inner + width)
        if sum(entry.values for entry in biases) != declared or len({entry.dtype for entry in biases}) != 1:
            raise ModelFileError(
                f"The biases of the routed experts of layer {layer} are {sum(entry.values for entry in biases):,}"
                f" numbers; the metadata describes {declared:,}.",
                FILES_FIX,
                layer=layer,
            )
        bias_bytes = biases[0].nbytes // biases[0].values
    return ExpertStorage(gate=gate, up=up, down=down, bias_bytes=max(bias_bytes, 1))


def _matrix(
    experts: ExpertShape, layer: int, name: str, found: dict[_What, list[TensorEntry]], size: tuple[int, int]
) -> MatrixStorage:
    entries = found.get((name, "weight"), [])
    together = (*size, experts.n_experts)
    apart = len(entries) == experts.n_experts and all(entry.shape == size for entry in entries)
    if not apart and not (len(entries) == 1 and entries[0].shape == together):
        shapes = ", ".join(" × ".join(map(str, entry.shape)) for entry in entries[:3]) or "nothing"
        raise ModelFileError(
            f"The {name} weights of the routed experts of layer {layer} are {shapes} in the file; the metadata"
            f" describes {' × '.join(map(str, together))}.",
            FILES_FIX,
            layer=layer,
        )
    kinds = {entry.dtype for entry in entries}
    kind = entries[0].dtype
    if len(kinds) != 1 or kind not in _FORMATS:
        raise CannotEstimateError(
            f"The {name} weights of the routed experts of layer {layer} are stored as {' and '.join(sorted(kinds))};"
            " their size in memory is not known.",
            _FIX,
            stored_as=kind,
        )
    weights, block_bytes = _BLOCKS[kind]
    usual = usual_storage(_FORMATS[kind])
    if (usual.block_weights, usual.block_bytes) == (weights, block_bytes):
        return usual
    return MatrixStorage(format=_FORMATS[kind], block_weights=weights, block_bytes=block_bytes)
