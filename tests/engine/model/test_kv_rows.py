"""How keys and values are stored: plain, or in fp8 with a scale a row."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.model.kv_rows import FP8, Fp8Rows, PlainRows, move_rows

PLACES, HEADS, SIZE = 20, 3, 16


def _fp8() -> Fp8Rows:
    return Fp8Rows(
        torch.zeros(1, HEADS, PLACES, SIZE, dtype=torch.uint8).view(FP8),
        torch.zeros(1, HEADS, PLACES, 1, dtype=torch.bfloat16),
        torch.zeros(HEADS * PLACES * SIZE),
    )


def _random(tokens: int, seed: int = 1) -> Tensor:
    return torch.randn(1, HEADS, tokens, SIZE, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("places", [slice(4, 9), torch.tensor([7, 0, 19, 3, 12])])
def test_fp8_gives_back_each_value_within_a_sixteenth_of_it(places: slice | Tensor) -> None:
    """Three bits behind the point: half a step is a sixteenth; far below the largest of a row steps stay alike."""
    rows, new = _fp8(), _random(5)
    rows.write(places, new)
    got = rows.read(places)
    most = new.abs().amax(dim=-1, keepdim=True)
    assert ((got - new).abs() <= new.abs() / 16 + most * 2**-8).all()


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e4, 3e30])
def test_the_scale_of_a_row_fits_its_size(factor: float) -> None:
    rows, new = _fp8(), _random(1)
    rows.write(slice(0, 1), new * factor)
    error = rows.read(slice(0, 1)) / factor - new
    assert error.isfinite().all()
    assert error.norm() / new.norm() < 0.04


def test_one_large_token_does_not_spoil_its_neighbours() -> None:
    rows, new = _fp8(), _random(3)
    new[:, :, 1] *= 10_000
    rows.write(slice(0, 3), new)
    error = (rows.read(slice(0, 3)) - new).norm(dim=-1) / new.norm(dim=-1)
    assert (error < 0.04).all()


def test_zeros_stay_zeros() -> None:
    rows = _fp8()
    rows.write(slice(0, 2), torch.zeros(1, HEADS, 2, SIZE))
    assert (rows.read(slice(0, 2)) == 0).all()


@given(source=st.integers(0, 2500), target=st.integers(0, 2500), tokens=st.integers(0, 2500))
def test_rows_that_overlap_arrive_whole(source: int, target: int, tokens: int) -> None:
    numbers = torch.arange(5000).view(1, 1, -1, 1).repeat(1, 2, 1, 1)
    want = numbers.clone()
    want[:, :, target : target + tokens] = numbers[:, :, source : source + tokens].clone()
    move_rows(numbers, source, target, tokens)
    assert torch.equal(numbers, want)


def test_values_and_their_scales_move_together() -> None:
    for rows in (_fp8(), PlainRows(torch.zeros(1, HEADS, PLACES, SIZE))):
        rows.write(slice(2, 8), _random(6))
        before = rows.read(slice(2, 8)).clone()
        rows.move(2, 5, 6)
        assert torch.equal(rows.read(slice(5, 11)), before)
