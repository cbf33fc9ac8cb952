"""Native kernels for weights in rows with scales beside them: MXFP4, NVFP4, fp8, int8, pack-quantized."""

from collections.abc import Callable

import pytest
import torch

from engine.experts.dequant.code import MatrixCode
from engine.system.native_library import NativeLibrary
from tests.support.native_matrices import (
    NUMBERS,
    Packed,
    Placed,
    activations,
    assert_product,
    assert_same_bits,
    assert_same_in_company,
    instruction_sets,
    random_matrix,
)

SETS = instruction_sets()
SIZES = [(64, 256), (33, 96), (7, 130), (5, 46), (3, 16), (130, 320), (2, 1100)]
SIZES_OF_PACKED = [(64, 256), (40, 96), (16, 136), (96, 48), (160, 320), (64, 1184)]  # zero points fill whole words
ODD_SIZES = [(7, 131), (1, 1), (9, 77)]


def _fp4(rows: int, columns: int) -> list[MatrixCode]:
    layouts = [
        ("U8", "U8", 32),
        ("I8", "F8_E8M0", 32),
        ("U8", "F8_E4M3", 16),
        ("F4", "BF16", 64),
        ("U8", "F32", columns),
    ]
    return [MatrixCode("fp4", rows, columns, dtype, scale, (1, wide)) for dtype, scale, wide in layouts]


def _fp8(rows: int, columns: int) -> list[MatrixCode]:
    layouts = [
        ("F32", (128, 128)), ("BF16", (128, 128)), ("F8_E8M0", (64, 64)), ("U8", (1, 32)), ("BF16", (1, columns)),
        ("F16", (rows, columns)), ("F32", (16, 16)), (None, (rows, columns)),
    ]  # fmt: skip
    return [
        MatrixCode("fp8", rows, columns, dtype, scale, tile)
        for dtype in ("F8_E4M3", "F8_E5M2")
        for scale, tile in layouts
    ]


def _int8(rows: int, columns: int) -> list[MatrixCode]:
    layouts = [("BF16", (1, columns)), ("F32", (1, 128)), ("F16", (1, 32)), ("F32", (rows, columns)), ("F32", (1, 16))]
    return [MatrixCode("int8", rows, columns, "I8", scale, tile, 8) for scale, tile in layouts]


def _packed(rows: int, columns: int) -> list[MatrixCode]:
    layouts = [("BF16", columns), ("F32", 128), ("F16", 32), ("F32", 16), ("BF16", 64)]
    return [
        MatrixCode("packed", rows, columns, "I32", scale, (1, wide), bits) for bits in (4, 8) for scale, wide in layouts
    ]


def _matrices(sizes: list[tuple[int, int]], codes: Callable[[int, int], list[MatrixCode]]) -> list[Packed]:
    """Of every size and layout, with and without what a layout may have."""
    random, found = torch.Generator().manual_seed(4), []
    for rows, columns in sizes:
        for code in codes(rows, columns):
            match code.kind:
                case "fp4":
                    found.append(random_matrix(code, random))
                    found.append(random_matrix(code, random, whole=0.0123))
                    divides = MatrixCode("fp4", rows, columns, code.dtype, code.scale_dtype, code.tile, divides=True)
                    found.append(random_matrix(divides, random, whole=812.5))
                case "fp8":
                    found.append(random_matrix(code, random, whole=None if code.scale_dtype else 0.0123))
                case _:
                    found.append(random_matrix(code, random))
                    found.append(random_matrix(code, random, zeros=True))
    return found


MATRICES = {
    "fp4": lambda: _matrices(SIZES, _fp4),
    "fp8": lambda: _matrices([*SIZES, *ODD_SIZES], _fp8),
    "int8": lambda: _matrices([*SIZES, *ODD_SIZES], _int8),
    "packed": lambda: _matrices(SIZES_OF_PACKED, _packed),
}


@pytest.mark.parametrize("kind", MATRICES)
def test_weights_unpack_bit_for_bit_as_the_reference_does(kind: str, known: NativeLibrary) -> None:
    for number, packed in enumerate(MATRICES[kind]()):
        placed = Placed(packed, first_row=number % 3, row_step=1 + number % 2)
        for dtype in NUMBERS:
            assert_same_bits(placed.unpack(known, dtype), packed.weights(dtype))


@pytest.mark.parametrize("kind", MATRICES)
def test_products_are_those_of_the_weights_but_for_rounding(kind: str, known: NativeLibrary) -> None:
    for number, packed in enumerate(MATRICES[kind]()):
        placed = Placed(packed, first_row=number % 3, row_step=1 + number % 2)
        for tokens in (1, 1 + number % 8, 9 + number % 32):  # many go through strips of unpacked weights
            rows = activations(tokens, packed.code.columns)
            assert_product(placed.product(known, rows), rows, packed.weights())


@pytest.mark.parametrize("kind", MATRICES)
def test_a_scale_may_have_any_value(kind: str, known: NativeLibrary) -> None:
    """Subnormal, huge and infinite ones, and what is no number; weights of fp8 are always of every value."""
    random = torch.Generator().manual_seed(5)
    layouts = {"fp4": _fp4, "fp8": _fp8, "int8": _int8, "packed": _packed}[kind]
    for code in layouts(96, 320):
        packed = random_matrix(code, random, any_scale=True)
        placed = Placed(packed)
        for dtype in NUMBERS:
            assert_same_bits(placed.unpack(known, dtype), packed.weights(dtype))
        rows = activations(2, code.columns)
        assert_product(placed.product(known, rows), rows, packed.weights())


@pytest.mark.parametrize("kind", MATRICES)
def test_a_row_has_the_same_product_in_any_company_and_with_any_instructions(kind: str) -> None:
    assert_same_in_company(MATRICES[kind]()[::5], SETS, (2, 3, 5, 8))


@pytest.mark.parametrize(
    "code",
    [
        MatrixCode("fp4", 8, 96, "U8", "F8_E4M3", (1, 8)),
        MatrixCode("fp4", 8, 96, "U8", "F64", (1, 32)),
        MatrixCode("fp8", 8, 96, "F8_E4M3", "F32", (8, 24)),
        MatrixCode("int8", 8, 96, "I8", "F32", (1, 48), 8),
        MatrixCode("packed", 32, 96, "I32", "F32", (1, 32), 2),
        MatrixCode("packed", 32, 96, "I32", "F32", (1, 32), 3),
    ],
    ids=str,
)
def test_tiles_that_cut_groups_of_32_and_rare_numbers_are_left_to_the_reference(
    code: MatrixCode, known: NativeLibrary
) -> None:
    usual = MatrixCode(code.kind, code.rows, code.columns, code.dtype, "F32", code.tile, code.bits)
    packed = random_matrix(usual, torch.Generator().manual_seed(6))
    assert Placed(Packed(code, packed.pieces)).compile(known) is None
