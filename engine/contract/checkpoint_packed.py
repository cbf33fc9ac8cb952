"""Packed weights of a checkpoint with everything that belongs to them: one matrix instead of three or four tensors.

What is packed is decided by the number type and the endings of the names (checkpoint_names.py has the list). Scales of
activations and of a quantised KV cache are left out: the engine computes both in the model's own type.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.checkpoint_names import tensor_parts

_FLOAT_8 = frozenset({"F8_E4M3", "F8_E5M2"})
_EXPONENTS = frozenset({"U8", "F8_E8M0"})
_NEED_SCALES = frozenset({"U8", "I8", "I32", "F4"})  # such tensors may be something else than packed weights
_OF_CACHE = frozenset({"k_scale", "v_scale", "q_scale", "kv_scale"})
_USUAL_BITS = 4


@dataclass(slots=True)
class PackedTensor:
    """One packed matrix, or those of all experts of a layer in one tensor."""

    name: str  # what the tensor is called where it is not packed
    weight: TensorEntry
    scale: TensorEntry | None = None
    whole: TensorEntry | None = None  # the second scale of NVFP4, one for the whole matrix
    zero: TensorEntry | None = None
    order: TensorEntry | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in the files."""
        parts = (self.weight, self.scale, self.whole, self.zero, self.order)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def column_major(self) -> bool:
        """GPTQ and AWQ store inputs down and outputs across; all others outputs down, as torch does."""
        return self.weight.name.endswith(".qweight")

    def sizes(self, bits: int = _USUAL_BITS) -> tuple[int, ...]:
        """Sizes of the matrix once it is unpacked, outputs before inputs; `bits` where only config.json can tell."""
        shape = self.weight.shape
        scale = () if self.scale is None else self.scale.shape
        zero = () if self.zero is None else self.zero.shape
        if not shape or self.weight.dtype in _FLOAT_8 or self.weight.dtype == "F4":
            return shape
        if self.column_major and len(shape) == len(scale) == 2:
            if shape[1] != scale[1]:  # AWQ packs outputs
                return scale[1], shape[0]
            if self.order is not None:
                return scale[1], self.order.values
            return scale[1], shape[0] * 32 // _bits(zero[-1:], scale[1], bits)
        if self.weight.dtype == "I32":
            return (*shape[:-1], shape[-1] * 32 // _bits(zero[:1], shape[0], bits))
        if len(shape) > 2 and len(shape) == len(scale) + 1:  # [..., groups, bytes of a group]
            return (*shape[:-2], 2 * shape[-2] * shape[-1])
        two_in_one = self.weight.dtype == "U8" or (self.scale is not None and self.scale.dtype in _EXPONENTS)
        return (*shape[:-1], 2 * shape[-1]) if two_in_one else shape


def _bits(words: tuple[int, ...], numbers: int, otherwise: int) -> int:
    """Bits of one of `numbers` zero points in so many words of 32 bits; `otherwise` where there are none."""
    bits = 32 * words[0] // numbers if words and numbers else otherwise
    return bits if bits in (2, 3, 4, 8) else otherwise


@dataclass(slots=True)
class SortedTensors:
    """Tensors as they are, and packed ones by the name of what they become."""

    plain: dict[str, TensorEntry]
    packed: dict[str, PackedTensor]


def sort_packed(entries: Iterable[TensorEntry]) -> SortedTensors:
    """Put packed weights together with their scales, zero points and column order."""
    split = [(entry, *tensor_parts(entry.name)) for entry in entries]
    scaled = {base for _, base, purpose in split if purpose == "scale"}
    packed: dict[str, PackedTensor] = {}
    for entry, base, purpose in split:
        is_packed = entry.dtype in _FLOAT_8 or (entry.dtype in _NEED_SCALES and base in scaled)
        if purpose == "weight" and is_packed:
            dotted = entry.name.startswith(f"{base}.")
            fused = dotted and base.rpartition(".experts.")[2] in ("gate_up_proj", "down_proj")
            packed[base] = PackedTensor(f"{base}.weight" if dotted and not fused else base, entry)
    plain: dict[str, TensorEntry] = {}
    for entry, base, purpose in split:
        found = packed.get(base)
        match purpose:
            case "scale" if found:
                found.scale = entry
            case "whole scale" if found:
                found.whole = entry
            case "zero" if found:
                found.zero = entry
            case "order" if found:
                found.order = entry
            case "weight" if found:
                pass
            case "not kept" if found:
                pass
            case _ if entry.values == 1 and entry.name.rpartition(".")[2] in _OF_CACHE:
                pass
            case _:
                plain[entry.name] = entry
    return SortedTensors(plain, {tensor.name: tensor for tensor in packed.values()})


def unpacked_values(tensor: PackedTensor, bits: int = _USUAL_BITS) -> int:
    """How many weights a packed tensor holds."""
    return math.prod(tensor.sizes(bits))
