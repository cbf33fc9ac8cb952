"""Native kernels for the blocks of GGUF files."""

import numpy as np
import pytest
import torch

from engine.experts.dequant.code import MatrixCode, Pieces
from engine.experts.dequant.gguf import GGUF_TYPES
from engine.system.native_library import NativeLibrary
from tests.support.gguf_rows import random_gguf_rows
from tests.support.native_matrices import (
    NUMBERS,
    Packed,
    Placed,
    activations,
    assert_product,
    assert_same_bits,
    assert_same_in_company,
    instruction_sets,
)

SETS = instruction_sets()
TYPES = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
)  # fmt: skip
SIZES = ((1, 256), (7, 512), (33, 768), (300, 256))


def _blocks(name: str, rows: int, columns: int, *, spread: float = 2.0, seed: int = 1) -> Packed:
    raw = torch.from_numpy(random_gguf_rows(np.random.default_rng(seed), name, rows, columns, spread)).flatten()
    return Packed(MatrixCode("gguf", rows, columns, name), Pieces(raw))


@pytest.mark.parametrize("name", TYPES)
def test_weights_unpack_bit_for_bit_as_the_reference_does(name: str, known: NativeLibrary) -> None:
    for number, (rows, columns) in enumerate(SIZES):
        packed = _blocks(name, rows, columns, spread=(2.0, 1e-7, 6e4)[number % 3])
        placed = Placed(packed, first_row=number % 3, row_step=1 + number % 2)
        for dtype in NUMBERS:
            assert_same_bits(placed.unpack(known, dtype), packed.weights(dtype))


@pytest.mark.parametrize("name", TYPES)
def test_blocks_may_hold_anything(name: str, known: NativeLibrary) -> None:
    raw = torch.randint(256, _blocks(name, 64, 512).pieces.weight.shape, generator=torch.Generator().manual_seed(3))
    packed = Packed(MatrixCode("gguf", 64, 512, name), Pieces(raw.to(torch.uint8)))
    placed, rows = Placed(packed), activations(2, 512)
    assert_same_bits(placed.unpack(known, torch.float32), packed.weights())
    assert_product(placed.product(known, rows), rows, packed.weights())


@pytest.mark.parametrize("name", TYPES)
def test_products_are_those_of_the_weights_but_for_rounding(name: str, known: NativeLibrary) -> None:
    for number, (rows, columns) in enumerate(SIZES):
        packed = _blocks(name, rows, columns)
        placed = Placed(packed, first_row=number % 3, row_step=1 + number % 2)
        for tokens in range(1, 9) if number == 1 else (1, 5):
            values = activations(tokens, columns)
            assert_product(placed.product(known, values), values, packed.weights())


@pytest.mark.parametrize("name", TYPES)
def test_a_row_has_the_same_product_in_any_company_and_with_any_instructions(name: str) -> None:
    assert_same_in_company([_blocks(name, 40, 512)], SETS, (2, 3, 4, 5, 7, 8))


def test_types_without_a_kernel_are_left_to_the_reference(known: NativeLibrary) -> None:
    for name in GGUF_TYPES:
        compiled = Placed(_blocks(name, 4, 256)).compile(known)
        assert (compiled is not None) is (name in TYPES)
