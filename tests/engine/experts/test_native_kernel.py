"""Experts by the C library: all of a small step at once, few rows without unpacking, more with the unpacked weights."""

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.contract.formats import WeightFormat
from engine.experts.kernels import routed_forward
from engine.experts.native_kernel import FEW_ROWS, NativeKernel
from engine.experts.sample_bank import GatedMath, SampleBank
from engine.system.native_library import NativeLibrary
from engine.system.protocols import KernelTask, PackedMatrix
from tests.support.gguf_rows import random_gguf_rows
from tests.support.native import torch_alone

EXPERTS, WIDTH, INNER = 12, 256, 512


def _bank(weight_format: WeightFormat = WeightFormat.Q4_K) -> SampleBank:
    """Twelve experts of random blocks."""
    bank = SampleBank(weight_format, torch.device("cpu"), 0, width=WIDTH, inner=INNER, active=4, least=EXPERTS)
    name = weight_format.value.upper()
    for expert in range(EXPERTS):
        blocks = random_gguf_rows(np.random.default_rng(expert), name, 3 * INNER, WIDTH, 0.003)
        bank.records[expert] = torch.from_numpy(blocks).flatten()
    return bank


def _answers(bank: SampleBank, tokens: int) -> Tensor:
    random = torch.Generator().manual_seed(tokens)
    hidden = torch.randn(tokens, WIDTH, generator=random).to(bank.dtype)
    ids = torch.stack([torch.randperm(EXPERTS, generator=random)[:4] for _ in range(tokens)])
    scores = torch.rand(tokens, 4, generator=random)
    return routed_forward(hidden, ids, scores, EXPERTS, bank, GatedMath())


@pytest.fixture
def threads() -> Iterator[None]:
    """torch's number of threads, as it was before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("weight_format", [WeightFormat.Q4_K, WeightFormat.Q8_0])
@pytest.mark.parametrize("tokens", [1, 2, FEW_ROWS, FEW_ROWS + 1, 40])
def test_a_step_of_any_size_answers_as_the_reference_does(tokens: int, weight_format: WeightFormat) -> None:
    found = _answers(_bank(weight_format), tokens).float()
    with torch_alone():
        wanted = _answers(_bank(weight_format), tokens).float()
    assert wanted.abs().max() > 0.01
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.01 * wanted.abs().max().item())  # both round to bf16


@pytest.mark.parametrize("bf16", [False, True])
def test_many_rows_are_unpacked_for_torch_only_where_that_is_the_faster_way(bf16: bool) -> None:
    with patch.object(NativeLibrary, "has_bf16", bf16):
        bank = _bank()
        kernel = bank.kernel
        assert isinstance(kernel, NativeKernel)
        with patch.object(kernel, "unpacked", wraps=kernel.unpacked) as unpacked:
            found = _answers(bank, 64).float()
        assert unpacked.called is bf16
    with torch_alone():
        wanted = _answers(_bank(), 64).float()
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.01 * wanted.abs().max().item())


@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_changes_no_bit() -> None:
    bank, answers = _bank(), []
    for count in (1, 2, 3, 8):
        torch.set_num_threads(count)
        answers.append(_answers(bank, 5))
    assert all(torch.equal(answer, answers[0]) for answer in answers)


def test_a_token_takes_two_calls_and_a_small_step_no_more() -> None:
    bank = _bank()
    kernel = bank.kernel
    assert isinstance(kernel, NativeKernel)
    calls: list[int] = []
    products = dict(kernel.products)

    class Counting:
        def __init__(self, side: str) -> None:
            self._product = products[side]  # type: ignore[index]

        def product(self, tasks: list[KernelTask], outputs: int, threads: int, strips: int) -> None:
            calls.append(len(tasks))
            self._product.product(tasks, outputs, threads, strips)

    with patch.object(kernel, "products", {side: Counting(side) for side in products}):
        _answers(bank, 1)
        assert calls == [4, 4]
        calls.clear()
        _answers(bank, FEW_ROWS)
    assert len(calls) == 2 and calls[0] == calls[1] <= EXPERTS


def test_a_matrix_that_the_library_does_not_know_leaves_the_layer_to_the_reference() -> None:
    class Knows:
        instructions = "none"
        has_bf16 = False

        def compile(self, matrices: list[PackedMatrix]) -> None:
            return None

    with patch("engine.system.select.kernel_library", Knows):
        assert _bank().kernel.name == "reference"
