"""Random packed matrices that end where readable memory ends, computed by the library of engine/native.

What is compared with is engine/experts/dequant; weights stand for their exact products in float64.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.experts.dequant.code import NUMBER_TYPES, MatrixCode, Pieces
from engine.experts.dequant.matrix import dequantise
from engine.experts.native_kernel import FEW_ROWS, described
from engine.system.native_library import FOLDER, INSTRUCTION_SETS, NAME, NativeLibrary
from engine.system.protocols import STRIP_ROWS, KernelTask, NumberType, PackedProduct

NUMBERS: dict[torch.dtype, NumberType] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
UNTOUCHED = 7.0  # what outputs hold that are not the matrix's
_BITS = {"fp4": 4, "fp8": 8, "int8": 8}
_SCALE_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1}


def instruction_sets() -> list[str]:
    """Those of this machine, the best one first. The library has to be there: `python -m engine.native.build`."""
    found = []
    for name in INSTRUCTION_SETS:
        try:
            NativeLibrary(FOLDER / NAME, (name,))
        except OSError:
            continue
        found.append(name)
    assert found, "the library of engine/native is missing or does not load"
    NativeLibrary(FOLDER / NAME)
    return found


@contextmanager
def library(name: str) -> Iterator[NativeLibrary]:
    """The library, computing with this instruction set for a while, then with the best one again."""
    yield NativeLibrary(FOLDER / NAME, (name,))
    NativeLibrary(FOLDER / NAME)


@dataclass(frozen=True)
class Packed:
    """A matrix and its bytes."""

    code: MatrixCode
    pieces: Pieces

    def weights(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """As the reference unpacks them, [rows, columns]."""
        out = torch.empty(self.code.rows, self.code.columns, dtype=dtype)
        dequantise(self.code, self.pieces, out)
        return out


def random_matrix(
    code: MatrixCode,
    random: torch.Generator,
    *,
    zeros: bool = False,
    order: Tensor | None = None,
    whole: float | None = None,
    any_scale: bool = False,
) -> Packed:
    """Bytes of every value.

    Args:
        order: groups of the columns, of GPTQ.
        any_scale: scales of every value too, infinite ones and those that are no numbers among them.
    """
    down, across = code.grid
    n_scales = down * across
    scale = None
    if code.scale_dtype is not None:
        size = n_scales * _SCALE_BYTES[code.scale_dtype]
        scale = _bytes(random, size) if any_scale else _usual_scales(random, n_scales, code.scale_dtype)
    zero = None
    if zeros:
        zero = _bytes(random, n_scales if code.kind == "int8" else n_scales * code.bits // 8)
    weight = _bytes(random, code.rows * code.columns * _BITS.get(code.kind, code.bits) // 8)
    raw_order = None if order is None else order.int().contiguous().view(torch.uint8)
    return Packed(code, Pieces(weight, scale, zero, raw_order, None if whole is None else torch.tensor(whole)))


def _bytes(random: torch.Generator, count: int) -> Tensor:
    return torch.randint(256, (count,), generator=random).to(torch.uint8)


def _usual_scales(random: torch.Generator, count: int, dtype: str) -> Tensor:
    if dtype in ("U8", "F8_E8M0"):
        return torch.randint(115, 135, (count,), generator=random).to(torch.uint8)
    if dtype == "F8_E4M3":
        return torch.randint(1, 0x7F, (count,), generator=random).to(torch.uint8)
    return (torch.rand(count, generator=random) * 0.02 + 0.001).to(NUMBER_TYPES[dtype]).view(torch.uint8)


class Placed:
    """A matrix in memory, each piece right before a page that cannot be read (on Windows: just in memory)."""

    def __init__(self, packed: Packed, *, first_row: int = 0, row_step: int = 1) -> None:
        self.packed = packed
        self.outputs = first_row + packed.code.rows * row_step
        self._first_row, self._row_step = first_row, row_step
        pieces = packed.pieces
        self._held = [
            None if raw is None else _Held(raw) for raw in (pieces.weight, pieces.scale, pieces.zero, pieces.order)
        ]
        self._whole = None if pieces.whole is None else pieces.whole.reshape(1).clone()
        self._base = min(held.address for held in self._held if held is not None)

    def compile(self, known: NativeLibrary) -> PackedProduct | None:
        """Ready for the library; None: it does not know such a matrix."""
        starts = [None if held is None else held.address - self._base for held in self._held]
        wholes = 0 if self._whole is None else self._whole.data_ptr()
        matrix = described(self.packed.code, starts, wholes, first_row=self._first_row, row_step=self._row_step)
        return known.compile([matrix])

    def unpack(self, known: NativeLibrary, dtype: torch.dtype) -> Tensor:
        """[rows, columns]; nothing else is written."""
        out = torch.full((self.outputs, self.packed.code.columns), UNTOUCHED, dtype=dtype)
        product = self.compile(known)
        assert product is not None, f"{self.packed.code} is not known"
        product.unpack(self._base, 0, out.data_ptr(), NUMBERS[dtype], out.shape[1], 2)
        return self._own(out.T).T.contiguous()

    def product(self, known: NativeLibrary, rows: Tensor) -> Tensor:
        """[T, columns] to [T, rows]; nothing else is written."""
        out = torch.full((rows.shape[0], self.outputs), UNTOUCHED)
        product = self.compile(known)
        assert product is not None, f"{self.packed.code} is not known"
        strips = torch.empty(2 * STRIP_ROWS * rows.shape[1] if len(rows) > FEW_ROWS else 0)
        task = KernelTask(self._base, rows.data_ptr(), out.data_ptr(), 0, len(rows))
        product.product([task], self.outputs, 2, strips.data_ptr())
        return self._own(out)

    def _own(self, out: Tensor) -> Tensor:
        """Outputs of the matrix out of [n, outputs]; asserts that the others are untouched."""
        places = self._first_row + self._row_step * torch.arange(self.packed.code.rows)
        others = torch.ones(self.outputs, dtype=torch.bool)
        others[places] = False
        assert (out[:, others] == UNTOUCHED).all()
        return out[:, places]


class _Held:
    """Bytes that end at the end of a page; the next one cannot be read."""

    def __init__(self, raw: Tensor) -> None:
        page = mmap.PAGESIZE
        size = -(-raw.numel() // page) * page
        self._memory = mmap.mmap(-1, size + page)
        view = ctypes.c_char.from_buffer(self._memory)
        start = ctypes.addressof(view)
        self.address = start + size - raw.numel()
        ctypes.memmove(self.address, raw.contiguous().data_ptr(), raw.numel())
        if os.name == "posix":
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(page), 0) == 0


def assert_same_bits(found: Tensor, wanted: Tensor) -> None:
    """Equal numbers with equal signs; what is no number stays none."""
    none = wanted.isnan()
    assert torch.equal(found.isnan(), none)
    whole = torch.int32 if wanted.dtype == torch.float32 else torch.int16
    assert torch.equal(found.contiguous().view(whole)[~none], wanted.contiguous().view(whole)[~none])


def assert_product(found: Tensor, rows: Tensor, weights: Tensor) -> None:
    """Within rounding of what float64 makes of weights and rows, where float32 can hold all sums."""
    exact = rows.double() @ weights.double().T
    most = rows.double().abs() @ weights.double().abs().T
    assert torch.equal(found.isnan() & (most < 1e38), exact.isnan() & (most < 1e38))
    fits = most < 1e38
    assert ((found.double() - exact).abs() <= 1e-6 * most + 1e-40)[fits].all()
    none = weights.isnan().any(dim=1)
    assert found[:, none].isnan().all()


def activations(tokens: int, columns: int) -> Tensor:
    """[tokens, columns], the same every time."""
    return torch.randn(tokens, columns, generator=torch.Generator().manual_seed(tokens))


def assert_same_in_company(matrices: Sequence[Packed], sets: Sequence[str], counts: Sequence[int]) -> None:
    """A row's product is the same, bit for bit, whichever rows are computed with it and by whatever instructions."""
    first: list[Tensor] = []
    for instructions in sets:
        with library(instructions) as known:
            for number, packed in enumerate(matrices):
                placed, rows = Placed(packed), activations(max(counts), packed.code.columns)
                alone = torch.cat([placed.product(known, row[None].contiguous()) for row in rows])
                for count in counts:
                    assert_same_bits(placed.product(known, rows[:count].contiguous()), alone[:count])
                if instructions == sets[0]:
                    first.append(alone)
                assert_same_bits(alone, first[number])
