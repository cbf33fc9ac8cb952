"""Banks whose records say which expert they are."""

from collections.abc import Iterator

import pytest

from engine.banks.bank import BankLayout, ExpertBank
from engine.contract.formats import WeightFormat
from engine.contract.shape import ExpertShape
from engine.system import select

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
