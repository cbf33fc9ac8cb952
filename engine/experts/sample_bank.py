"""A bank of experts that mean nothing, stored in any format the engine can run: what a measurement computes with.

The bytes go through the kernel that a model's own would go through, so a format is measured as it is computed. Letters:
E experts, M width of the model, F width of an expert.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.banks.bank import BankLayout
from engine.contract.formats import GGUF_BLOCKS, INT_BITS, WeightFormat
from engine.contract.shape import ExpertShape
from engine.experts.dequant.code import MatrixCode
from engine.experts.expert_kernel import PartShapes, kernel_for
from engine.experts.kernels import Expert, SeveralExperts
from engine.experts.native_kernel import several_of
from engine.experts.reference_kernel import PackedExperts, Scratch, StoredMatrix
from engine.system import select

_BYTE = 0x35  # two small numbers of 4 bits, or 0.8 as E4M3
_GGUF_BYTE = 0x15  # two of them are 0.0012 as float16, the factor of many blocks
_ZERO_BYTE = 0x12
_ONE_E8M0 = 0x7F
_VALUE = 0.01  # of plain numbers and of scales with 16 or 32 bits


class SampleBank:
    """E experts one behind the other in memory, handed out as the layers of the engine do."""

    def __init__(
        self,
        weight_format: WeightFormat,
        device: torch.device,
        nbytes: int,
        *,
        width: int,
        inner: int,
        active: int,
        least: int = 3,
    ) -> None:
        """`nbytes` of experts, `least` of them at least; `active` are asked for at a time."""
        one = BankLayout(_shape(1, 1, width, inner), weight_format)
        self.n_experts = max(least, nbytes // one.nbytes)
        self.active = min(active, self.n_experts)
        layout = BankLayout(_shape(self.n_experts, self.active, width, inner), weight_format)
        self.expert_bytes = layout.record.bytes
        self.dtype = layout.dtype or torch.bfloat16  # of the numbers that are computed with
        self.records = _filled(layout, weight_format).repeat(self.n_experts, 1).to(device)
        packed = None if layout.dtype is not None else _packed(layout, weight_format)
        self.kernel = kernel_for(
            layout,
            PartShapes("gate_up", (2 * inner, width), (width, inner)),
            packed,
            dtype=self.dtype,
            device=device,
            scratch=Scratch(),
            library=select.kernel_library() if device.type == "cpu" else None,
        )
        self._next = 0

    def next_experts(self) -> list[int]:
        """Experts that were not used for the longest time."""
        chosen = [(self._next + step) % self.n_experts for step in range(self.active)]
        self._next = (self._next + self.active) % self.n_experts
        return chosen

    def several(self, tokens: int) -> SeveralExperts | None:
        """As a layer in host memory does."""
        return several_of(self.kernel, self.records.__getitem__, tokens)

    def stream(self, experts: list[int]) -> Iterator[Expert]:
        """Each expert; valid until the next one."""
        for expert in experts:
            yield self.kernel.expert(self.records[expert], expert)


class GatedMath:
    """The usual gated activation."""

    transposed = False

    def activate(self, gate_up: Tensor) -> Tensor:
        """[T, 2F] to [T, F]."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def finish(self, out: Tensor) -> Tensor:
        """Nothing comes after."""
        return out


def _shape(n_experts: int, top_k: int, width: int, inner: int) -> ExpertShape:
    return ExpertShape(n_experts=n_experts, top_k=top_k, width=width, inner=inner)


def _filled(layout: BankLayout, weight_format: WeightFormat) -> Tensor:
    """The bytes of one expert, uint8 [record.bytes]."""
    byte = _GGUF_BYTE if weight_format in GGUF_BLOCKS else _BYTE
    record = torch.full((layout.record.bytes,), byte, dtype=torch.uint8)
    if layout.dtype is not None:
        record.view(layout.dtype).fill_(_VALUE)
        return record
    for part in layout.record.parts:
        if part.name.endswith("_zero"):
            layout.raw(record, part.name).fill_(_ZERO_BYTE)  # else every weight may be nothing
        if part.name.endswith("_scale"):
            _fill_scales(layout.raw(record, part.name), _scale_dtype(weight_format))
    return record


def _fill_scales(raw: Tensor, dtype: str) -> None:
    match dtype:
        case "F8_E4M3":
            pass
        case "U8":
            raw.fill_(_ONE_E8M0)
        case "F32":
            raw.view(torch.float32).fill_(_VALUE)
        case _:
            raw.view(torch.bfloat16).fill_(_VALUE)


def _scale_dtype(weight_format: WeightFormat) -> str:
    """Number type of scales in the usual layout of a format, in the words of weight files."""
    match weight_format:
        case WeightFormat.NVFP4:
            return "F8_E4M3"
        case WeightFormat.MXFP4 | WeightFormat.MXFP8:
            return "U8"
        case _:
            return "BF16" if weight_format in INT_BITS else "F32"


def _packed(layout: BankLayout, weight_format: WeightFormat) -> PackedExperts:
    """How the records are read."""
    experts = layout.experts
    sizes = {"gate_up": (2 * experts.inner, experts.width), "down": (experts.width, experts.inner)}
    matrices = (
        StoredMatrix(_code(layout, weight_format, *sizes["gate_up"]), "up", "gate_up"),
        StoredMatrix(_code(layout, weight_format, *sizes["down"]), "down", "down"),
    )
    has_whole = weight_format in (WeightFormat.FP8, WeightFormat.NVFP4)
    whole = torch.full((layout.n_experts,), _VALUE) if has_whole else None
    return PackedExperts(matrices, (whole, whole), bias_dtype=None, transposed=False)


def _code(layout: BankLayout, weight_format: WeightFormat, rows: int, columns: int) -> MatrixCode:
    storage = layout.storage.up
    if weight_format in GGUF_BLOCKS:
        return MatrixCode("gguf", rows, columns, weight_format.value.upper())
    if not storage.scale_bytes:
        return MatrixCode("fp8", rows, columns, "F8_E4M3")
    tile = storage.tile_rows or rows, storage.tile_columns or columns
    scale = _scale_dtype(weight_format)
    if weight_format in (WeightFormat.NVFP4, WeightFormat.MXFP4):
        return MatrixCode("fp4", rows, columns, "U8", scale, tile)
    if weight_format in INT_BITS:
        return MatrixCode("packed", rows, columns, "I32", scale, tile, INT_BITS[weight_format])
    return MatrixCode("fp8", rows, columns, "F8_E4M3", scale, tile)
