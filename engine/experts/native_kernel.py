"""Packed experts by the C library of engine/native: few rows at a time without unpacking, all experts in one call.

Products are float32 times packed weights, summed in float32 and rounded once to the model's type, as a product of torch
is; biases, activation and norms are torch's own, in that type. So answers differ from those of other tiers by rounding.
Letters: N rows of all experts, M model width, F expert width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.banks.bank import BankLayout
from engine.experts.dequant.code import MatrixCode
from engine.experts.kernels import ExpertMath, ExpertWeights, SeveralExperts
from engine.experts.reference_kernel import SIDES, PackedExperts, ReferenceKernel, Scratch, Side, StoredMatrix
from engine.system.protocols import (
    STRIP_ROWS,
    KernelLibrary,
    KernelTask,
    NumberType,
    PackedMatrix,
    PackedProduct,
)

FEW_ROWS = 8  # of one expert; for more of them weights are unpacked first, by the library strip by strip or for torch
_NUMBERS: dict[torch.dtype, NumberType] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


def native_kernel(
    layout: BankLayout,
    packed: PackedExperts,
    library: KernelLibrary,
    *,
    dtype: torch.dtype,
    scratch: Scratch,
) -> "NativeKernel | None":
    """A kernel for the CPU; None: a matrix is stored in a way that the library does not know."""
    wholes = [None if whole is None else whole.to("cpu", torch.float32).contiguous() for whole in packed.wholes]
    products: dict[Side, PackedProduct] = {}
    for side in SIDES:
        found = library.compile(
            [
                _described(stored, layout, whole)
                for stored, whole in zip(packed.matrices, wholes, strict=True)
                if stored.side == side
            ]
        )
        if found is None:
            return None
        products[side] = found
    reference = ReferenceKernel(layout, packed, dtype=dtype, device=torch.device("cpu"), scratch=scratch)
    held = [whole for whole in wholes if whole is not None]
    unpacks = dtype is torch.float32 or (dtype is torch.bfloat16 and library.has_bf16)
    return NativeKernel(library.instructions, products, reference, dtype=dtype, held=held, unpacks=unpacks)


def _described(stored: StoredMatrix, layout: BankLayout, whole: Tensor | None) -> PackedMatrix:
    """A stored matrix in the words of the library."""
    places = [stored.place_of(layout, suffix) for suffix in ("", "_scale", "_zero", "_order")]
    starts = [None if place is None else place[0] for place in places]
    wholes = 0 if whole is None else whole.data_ptr()
    return described(stored.code, starts, wholes, first_row=stored.first_row, row_step=stored.row_step)


def described(
    code: MatrixCode, starts: Sequence[int | None], wholes: int, *, first_row: int = 0, row_step: int = 1
) -> PackedMatrix:
    """A matrix in the words of the library.

    Args:
        starts: where weights, scales, zero points and column order begin in a record; None: there are none.
        wholes: address of the scales of whole matrices, float32 [E]; 0: there are none.
        first_row: place of the first output among all of a side; `row_step` from one output to the next.
    """
    return PackedMatrix(
        kind=code.kind,
        dtype=code.dtype,
        scale_dtype=code.scale_dtype or "",
        rows=code.rows,
        columns=code.columns,
        tile=code.tile,
        bits=code.bits,
        zero_step=code.zero_step,
        divides=code.divides,
        first_row=first_row,
        row_step=row_step,
        pieces=tuple(starts),
        wholes=wholes,
    )


def several_of(kernel: object, record: Callable[[int], Tensor], tokens: int) -> SeveralExperts | None:
    """What computes the experts of a small step at once, where the kernel can and `record` returns host memory."""
    if not isinstance(kernel, NativeKernel) or tokens > FEW_ROWS:
        return None

    def several(experts: list[int], counts: list[int], rows: Tensor, math: ExpertMath) -> Tensor:
        return kernel.several([record(expert) for expert in experts], experts, counts, rows, math)

    return several


class NativeKernel:
    """Computes where the records lie, in host memory."""

    def __init__(
        self,
        instructions: str,
        products: dict[Side, PackedProduct],
        reference: ReferenceKernel,
        *,
        dtype: torch.dtype,
        held: Sequence[Tensor],
        unpacks: bool,
    ) -> None:
        """Made by `native_kernel`.

        Args:
            held: memory that the products read.
            unpacks: whether torch multiplies unpacked matrices faster than the library many rows. It does in float32,
                and in the 16 bits that the processor has instructions for; without them it is several times slower.
        """
        self.name = f"native {instructions}"
        self.products = products
        self._reference = reference
        self._dtype = dtype
        self._held = held
        self.unpacks = unpacks

    def expert(self, record: Tensor, number: int) -> "NativeExpert":
        """One expert; its unpacked weights, if it needs them, are valid until the next one of any layer."""
        return NativeExpert(self, record, number)

    def exact(self, record: Tensor, number: int) -> ExpertWeights:
        """As the reference unpacks it."""
        return self._reference.exact(record, number)

    def unpacked(self, record: Tensor, number: int) -> ExpertWeights:
        """The weights in the scratch."""
        number_type, threads = _NUMBERS[self._dtype], torch.get_num_threads()

        def unpack(*out: Tensor) -> None:
            for side, matrix in zip(SIDES, out, strict=True):
                address, columns = matrix.data_ptr(), matrix.shape[1]
                self.products[side].unpack(record.data_ptr(), number, address, number_type, columns, threads)

        return self._reference.in_scratch(record, unpack)

    def several(
        self, records: Sequence[Tensor], experts: Sequence[int], counts: Sequence[int], rows: Tensor, math: ExpertMath
    ) -> Tensor:
        """Several experts at once.

        Args:
            counts: how many of the rows go through each expert.
            rows: [N, M], those of an expert one behind the other; or one row [1, M] that all of them share.

        Returns:
            [N, M].
        """
        hidden = self._product("up", records, experts, counts, rows.to(self._dtype))
        hidden = math.activate(self._with_bias("up", hidden, records, counts))
        out = self._product("down", records, experts, counts, hidden)
        return math.finish(self._with_bias("down", out, records, counts))

    def _product(
        self, side: Side, records: Sequence[Tensor], experts: Sequence[int], counts: Sequence[int], rows: Tensor
    ) -> Tensor:
        """[N or 1, columns] to [N, outputs]."""
        shared = rows.shape[0] == 1
        outputs, columns = self._reference.size(side)
        values = rows.float().contiguous()
        out = torch.empty(sum(counts), outputs)
        row, target = values.data_ptr(), out.data_ptr()
        tasks = []
        for record, expert, count in zip(records, experts, counts, strict=True):
            tasks.append(KernelTask(record.data_ptr(), row, target, expert, count))
            target += 4 * count * outputs
            if not shared:
                row += 4 * count * columns
        threads, strips = torch.get_num_threads(), torch.empty(0)
        if max(counts) > FEW_ROWS:
            strips = torch.empty(threads * STRIP_ROWS * columns)
        self.products[side].product(tasks, outputs, threads, strips.data_ptr())
        return out.to(self._dtype)

    def _with_bias(self, side: Side, values: Tensor, records: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
        biases = [self._reference.bias(record, side, self._dtype) for record in records]
        if biases[0] is None:
            return values
        of_experts = torch.stack([bias for bias in biases if bias is not None])
        return values + of_experts.repeat_interleave(torch.tensor(counts), dim=0)


@dataclass(slots=True)
class NativeExpert:
    """One expert in its record."""

    kernel: NativeKernel
    record: Tensor
    number: int

    def compute(self, rows: Tensor, math: ExpertMath) -> Tensor:
        """[T, M] to [T, M]."""
        if rows.shape[0] <= FEW_ROWS or not self.kernel.unpacks:
            return self.kernel.several([self.record], [self.number], [rows.shape[0]], rows, math)
        return self.kernel.unpacked(self.record, self.number).compute(rows, math)
