"""One layer's records: laid out as the contract says, and given back completely."""

import pytest
import torch

from engine.banks.bank import BankLayout, ExpertBank
from engine.contract.errors import PlanMismatchError
from engine.contract.estimate import bank_bytes
from engine.contract.formats import WeightFormat
from engine.contract.shape import ExpertShape
from engine.system import select

SHAPE = ExpertShape(n_experts=3, top_k=1, width=10, inner=6, has_bias=True)
LAYOUT = BankLayout(SHAPE, WeightFormat.BF16)


def test_parts_lie_behind_each_other_in_every_record() -> None:
    bank = ExpertBank(0, LAYOUT, select.host_allocator().allocate(LAYOUT.nbytes))
    sizes = {"gate_up": 2 * 6 * 10, "down": 10 * 6, "gate_up_bias": 2 * 6, "down_bias": 10}
    number = 0.0
    for expert in range(3):
        for name, size in sizes.items():
            with bank.host_part(name, expert) as part:
                number += 1
                assert part.nbytes == 2 * size
                part[:] = torch.full((size,), number, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
    number = 0.0
    for expert in range(3):
        for name, size in sizes.items():
            number += 1
            view = LAYOUT.view(bank.record(expert), name, (size,))
            assert view.data_ptr() % 2 == 0
            assert torch.all(view == number)
            assert (view.data_ptr() - bank.record(expert).data_ptr()) % 64 == 0
    del view
    bank.free()


def test_the_layout_takes_the_bytes_of_the_contract() -> None:
    assert LAYOUT.nbytes == bank_bytes(SHAPE, WeightFormat.BF16)
    assert LAYOUT.nbytes % 4096 == 0


def test_a_block_of_another_size_is_a_wrong_plan() -> None:
    block = select.host_allocator().allocate(LAYOUT.nbytes + 4096)
    with pytest.raises(PlanMismatchError) as why:
        ExpertBank(0, LAYOUT, block)
    assert why.value.numbers["planned_bytes"] == LAYOUT.nbytes
    block.free()


def test_packed_weights_are_bytes_and_no_matrices() -> None:
    layout = BankLayout(ExpertShape(n_experts=3, top_k=1, width=64, inner=32), WeightFormat.NVFP4)
    record = torch.arange(layout.record.bytes, dtype=torch.int32).to(torch.uint8)
    assert layout.dtype is None
    assert layout.has("down_scale") and not layout.has("down_zero")
    part = layout.part("down_scale")
    assert layout.raw(record, "down_scale").tolist() == record[part.offset : part.offset + part.bytes].tolist()
    with pytest.raises(ValueError, match="down is packed"):
        layout.view(record, "down", (64, 32))


def test_a_bank_that_moved_to_the_device_has_no_host_copy() -> None:
    bank = ExpertBank(4, LAYOUT, select.host_allocator().allocate(LAYOUT.nbytes))
    block = bank.block
    assert block is not None
    bank.move_to(torch.zeros(LAYOUT.nbytes, dtype=torch.uint8))
    with pytest.raises(ValueError, match="released"):
        len(block.buffer)
    with pytest.raises(ValueError, match="layer 4 has no host copy"):
        bank.host_part("down", 0)
