"""Banks whose records say which expert they are, and the library of engine/native."""

from collections.abc import Iterator

import pytest

from engine.banks.bank import BankLayout, ExpertBank
from engine.contract.formats import WeightFormat
from engine.contract.shape import ExpertShape
from engine.system import select
from engine.system.native_library import INSTRUCTION_SETS, NativeLibrary
from tests.support.native_matrices import instruction_sets, library

EXPERTS = 6
LAYOUT = BankLayout(ExpertShape(n_experts=EXPERTS, top_k=2, width=8, inner=4), WeightFormat.FP32)


def number_of(layer: int, expert: int) -> int:
    """What every byte of a record holds."""
    return 1 + layer * EXPERTS + expert


@pytest.fixture(scope="session")
def banks() -> Iterator[list[ExpertBank]]:
    """Three layers; every record is filled with its own number."""
    made = [ExpertBank(layer, LAYOUT, select.host_allocator().allocate(LAYOUT.nbytes)) for layer in range(3)]
    for bank in made:
        for expert in range(EXPERTS):
            bank.record(expert).fill_(number_of(bank.layer, expert))
    yield made
    for bank in made:
        bank.free()


@pytest.fixture(params=INSTRUCTION_SETS)
def known(request: pytest.FixtureRequest) -> Iterator[NativeLibrary]:
    """The library of engine/native with each instruction set of this machine."""
    if request.param not in instruction_sets():
        pytest.skip(f"this processor has no {request.param}")
    with library(request.param) as found:
        yield found
