"""What turns the bytes of an expert into its computation; one kernel for each way of storing, chosen while loading.

A faster kernel implements `ExpertKernel` for the storages it knows and is chosen before the reference in `kernel_for`.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.banks.bank import BankLayout
from engine.experts.kernels import Expert, ExpertWeights
from engine.experts.native_kernel import native_kernel
from engine.experts.reference_kernel import PackedExperts, ReferenceKernel, Scratch
from engine.system.protocols import KernelLibrary


class ExpertKernel(Protocol):
    """Knows what the bytes of one layer's records mean."""

    @property
    def name(self) -> str:
        """For the residency report."""
        ...

    def expert(self, record: Tensor, number: int) -> Expert:
        """An expert from its record (uint8 [record.bytes], where it is computed); valid until the next one."""
        ...

    def exact(self, record: Tensor, number: int) -> ExpertWeights:
        """Its weights in float32 and memory of their own: what the self-test compares with."""
        ...


@dataclass(frozen=True, slots=True)
class PartShapes:
    """Shapes of the matrices in a record, as the model's own module has them without the leading E."""

    up_name: str  # "gate_up" or "up"
    up: tuple[int, ...]
    down: tuple[int, ...]
    up_bias: tuple[int, ...] | None = None
    down_bias: tuple[int, ...] | None = None
    down_turned: bool = False  # down lies in the record the other way round than up: [F, M] after [2F, M]


class TorchKernel:
    """Matrices as they lie in the record, for weights of one plain number type."""

    name = "torch"

    def __init__(self, layout: BankLayout, shapes: PartShapes) -> None:
        self._layout = layout
        self._shapes = shapes

    def expert(self, record: Tensor, number: int) -> ExpertWeights:
        """Views of the record."""
        layout, shapes = self._layout, self._shapes
        up, down = shapes.up_name, layout.view(record, "down", shapes.down)
        return ExpertWeights(
            up=layout.view(record, up, shapes.up),
            down=down.T if shapes.down_turned else down,
            up_bias=None if shapes.up_bias is None else layout.view(record, f"{up}_bias", shapes.up_bias),
            down_bias=None if shapes.down_bias is None else layout.view(record, "down_bias", shapes.down_bias),
        )

    def exact(self, record: Tensor, number: int) -> ExpertWeights:
        """In float32."""
        one = self.expert(record, number)
        biases = [None if bias is None else bias.float() for bias in (one.up_bias, one.down_bias)]
        return ExpertWeights(one.up.float(), one.down.float(), *biases)


def kernel_for(
    layout: BankLayout,
    shapes: PartShapes,
    packed: PackedExperts | None,
    *,
    dtype: torch.dtype,
    device: torch.device,
    scratch: Scratch,
    library: KernelLibrary | None = None,
) -> ExpertKernel:
    """The fastest kernel that knows how a layer is stored.

    Args:
        packed: what is packed in the records; None: nothing.
        dtype: number type of unpacked weights.
        device: computes.
        scratch: room for unpacked weights, shared by all layers.
        library: computes on the CPU with what it knows of packed experts; for records in host memory.
    """
    if packed is None:
        return TorchKernel(layout, shapes)
    if library is not None:
        native = native_kernel(layout, packed, library, dtype=dtype, scratch=scratch)
        if native is not None:
            return native
    return ReferenceKernel(layout, packed, dtype=dtype, device=device, scratch=scratch)
