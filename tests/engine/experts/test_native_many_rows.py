"""Products of the C library with many rows of activations, for which weights become float32 strip by strip."""

import numpy as np
import pytest
import torch

from engine.experts.dequant.code import MatrixCode, Pieces
from engine.experts.native_kernel import FEW_ROWS
from engine.system.native_library import NativeLibrary
from tests.support.gguf_rows import random_gguf_rows
from tests.support.native_matrices import (
    Packed,
    Placed,
    activations,
    assert_product,
    assert_same_bits,
    random_matrix,
)

CODES = {
    "nvfp4": MatrixCode("fp4", 70, 208, "U8", "F8_E4M3", (1, 16)),
    "fp8 with a rest": MatrixCode("fp8", 37, 131, "F8_E4M3", "F32", (16, 128)),
    "packed int4": MatrixCode("packed", 72, 96, "I32", "BF16", (1, 32), 4),
    "gptq": MatrixCode("gptq", 136, 320, "I32", "F16", (1, 64), 4, zero_step=1),
    "awq": MatrixCode("awq", 136, 320, "I32", "F16", (1, 64), 4),
}


def _packed(name: str) -> Packed:
    if name in CODES:
        packed = random_matrix(CODES[name], torch.Generator().manual_seed(5), zeros=name in ("gptq", "awq"))
        if name.startswith("fp8"):
            packed.pieces.weight[packed.pieces.weight & 0x7F == 0x7F] = 0x2C  # numbers only
        return packed
    raw = torch.from_numpy(random_gguf_rows(np.random.default_rng(4), name, 67, 512)).flatten()
    return Packed(MatrixCode("gguf", 67, 512, name), Pieces(raw))


@pytest.mark.parametrize("name", ["Q4_K", "Q8_0", *CODES])
def test_products_are_those_of_the_weights_but_for_rounding(name: str, known: NativeLibrary) -> None:
    packed = _packed(name)
    for number, tokens in enumerate((FEW_ROWS + 1, 12, 31, 64)):
        placed, rows = (
            Placed(packed, first_row=number, row_step=1 + number % 2),
            activations(tokens, packed.code.columns),
        )
        assert_product(placed.product(known, rows), rows, packed.weights())


def test_a_row_has_the_same_product_in_any_large_company(known: NativeLibrary) -> None:
    placed, rows = Placed(_packed("Q4_K")), activations(30, 512)
    assert_same_bits(placed.product(known, rows[:17].contiguous()), placed.product(known, rows)[:17])
