"""Native kernels for weights that lie by outputs: GPTQ and AWQ."""

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
SIZES = [(64, 256), (32, 96), (16, 136), (40, 48), (136, 320), (264, 16)]


def _gptq(bits: int) -> list[Packed]:
    """Every size and width of groups, with and without zero points, columns in order and not."""
    random, found = torch.Generator().manual_seed(7), []
    for rows, columns in SIZES:
        for wide in (columns, 128, 32, 12):
            for version in (0, 1):
                code = MatrixCode("gptq", rows, columns, "I32", "F16", (1, wide), bits, zero_step=version)
                order = torch.arange(columns) // wide
                mixed = order[torch.randperm(columns, generator=random)]
                found.append(random_matrix(code, random, zeros=True))
                found.append(random_matrix(code, random, zeros=bool(version), order=order))
                found.append(random_matrix(code, random, zeros=bool(version), order=mixed))
    return found


def _awq() -> list[Packed]:
    random, found = torch.Generator().manual_seed(8), []
    for rows, columns in SIZES:
        for wide in (columns, 128, 32):
            code = MatrixCode("awq", rows, columns, "I32", "F16", (1, wide), 4)
            found += [random_matrix(code, random, zeros=True), random_matrix(code, random)]
    return found


MATRICES = {"gptq of 4 bits": lambda: _gptq(4), "gptq of 8 bits": lambda: _gptq(8), "awq": _awq}


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
def test_a_row_has_the_same_product_in_any_company_and_with_any_instructions(kind: str) -> None:
    assert_same_in_company(MATRICES[kind]()[::7], SETS, (2, 3, 5, 8))


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32"])
@pytest.mark.parametrize("kind", ["gptq", "awq"])
def test_a_scale_may_have_any_value(kind: str, dtype: str, known: NativeLibrary) -> None:
    code = MatrixCode("gptq" if kind == "gptq" else "awq", 96, 320, "I32", dtype, (1, 64), 4)
    packed = random_matrix(code, torch.Generator().manual_seed(9), zeros=True, any_scale=True)
    placed, rows = Placed(packed), activations(2, code.columns)
    assert_same_bits(placed.unpack(known, torch.float32), packed.weights())
    assert_product(placed.product(known, rows), rows, packed.weights())


@pytest.mark.parametrize("group", [4, -1, 1 << 30])
def test_a_column_in_a_group_that_does_not_exist_makes_every_weight_no_number(group: int, known: NativeLibrary) -> None:
    """The reference raises; a damaged file must not be read past its end, nor answer as if it were whole."""
    code = MatrixCode("gptq", 64, 128, "I32", "F16", (1, 32), 4)
    order = torch.arange(128) // 32
    order[77] = group
    placed = Placed(random_matrix(code, torch.Generator().manual_seed(9), zeros=True, order=order))
    assert placed.product(known, activations(1, 128)).isnan().all()
    assert placed.unpack(known, torch.bfloat16).isnan().all()


@pytest.mark.parametrize(
    "code",
    [
        MatrixCode("gptq", 64, 96, "I32", "F16", (1, 32), 2),
        MatrixCode("gptq", 64, 96, "I32", "F16", (1, 32), 3),
        MatrixCode("gptq", 8, 20, "I32", "F16", (1, 20), 8),
    ],
    ids=str,
)
def test_rare_numbers_and_columns_that_are_no_multiple_of_8_are_left_to_the_reference(
    code: MatrixCode, known: NativeLibrary
) -> None:
    packed = random_matrix(code, torch.Generator().manual_seed(6), zeros=True)
    assert Placed(packed).compile(known) is None
