"""A pin counts only if bytes arrive through it."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from typing_extensions import override

from engine.banks.arena import BankArena
from engine.banks.bank import BankLayout
from engine.banks.canary import SAMPLE_BYTES, pin_checked
from engine.banks.devices import Mark
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.formats import WeightFormat
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.shape import ExpertShape
from engine.system import select
from engine.system.protocols import HostBlock, PinRefusedError
from tests.support.host_memory import CountingAllocator, RecordingLocker

ROOMY = SimulatedGpu(vram_bytes=1 << 28, pin_bytes=1 << 28)
NBYTES = 5 * SAMPLE_BYTES + 100


class _Device(SimulatedDevice):
    """Copies in its own way."""

    def __init__(self, copy: Callable[[Tensor, Tensor], None]) -> None:
        super().__init__(ROOMY, chunk_bytes=SAMPLE_BYTES)
        self._copy = copy

    @override
    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        self._copy(target, source)
        return None


def _nothing(target: Tensor, source: Tensor) -> None:
    """Driver 591.86: no error, no bytes."""


def _half(target: Tensor, source: Tensor) -> None:
    target[: len(target) // 2].copy_(source[: len(source) // 2])


def _error(target: Tensor, source: Tensor) -> None:
    raise RuntimeError("CUDA error: invalid argument")


@pytest.fixture
def block() -> Iterator[HostBlock]:
    """Zeroed memory: bytes that look as if they had arrived."""
    made = select.host_allocator().allocate(NBYTES)
    yield made
    made.free()


@pytest.mark.parametrize("copy", [_nothing, _half, _error])
def test_a_pin_through_which_bytes_do_not_arrive_is_refused_for_good(
    block: HostBlock, copy: Callable[[Tensor, Tensor], None]
) -> None:
    device = _Device(copy)
    filled = torch.frombuffer(block.buffer, dtype=torch.uint8)
    with pytest.raises(PinRefusedError, match="did not arrive"):
        pin_checked(device, block.address, filled)
    assert device.pinned_bytes == 0
    with pytest.raises(PinRefusedError, match="not tried again"):
        pin_checked(device, block.address, filled)
    del filled


def test_a_pin_that_works_is_kept_and_the_memory_is_as_it_was(block: HostBlock) -> None:
    device = SimulatedDevice(ROOMY, chunk_bytes=SAMPLE_BYTES)
    block.buffer[:] = bytes(number % 251 for number in range(NBYTES))
    filled = torch.frombuffer(block.buffer, dtype=torch.uint8)
    before = filled.clone()
    pin_checked(device, block.address, filled)
    assert device.pinned_bytes == NBYTES
    assert torch.equal(filled, before)
    device.unpin(block.address)
    del filled


LAYOUT = BankLayout(ExpertShape(n_experts=4, top_k=2, width=64, inner=64), WeightFormat.FP32)


def test_layers_of_a_driver_that_copies_nothing_are_locked_and_the_report_says_why() -> None:
    device, locker = _Device(_nothing), RecordingLocker()
    arena = BankArena(LAYOUT, CountingAllocator(), device, locker)
    placements = [arena.settle(arena.create(layer), Tier.PINNED) for layer in range(2)]
    assert [placement.settled for placement in placements] == [Tier.LOCKED] * 2
    assert placements[0].cause is not None and "did not arrive" in placements[0].cause
    assert (device.pinned_bytes, len(locker.locked)) == (0, 2)
    arena.close()


@pytest.mark.parametrize("lock_too", [True, False])
def test_after_a_spent_quota_the_last_pinned_layers_make_room_and_are_reported(lock_too: bool) -> None:
    quota = 40 * LAYOUT.nbytes
    device = SimulatedDevice(ROOMY.model_copy(update={"pin_bytes": quota}))
    locker = RecordingLocker(most=None if lock_too else 0)
    arena = BankArena(LAYOUT, CountingAllocator(), device, locker)
    moved = []
    for layer in range(45):
        bank = arena.create(layer)
        bank.bytes.fill_(layer)
        arena.settle(bank, Tier.PINNED)
        moved += arena.give_back()
    below = Tier.LOCKED if lock_too else Tier.PAGEABLE
    assert [(item.layer, item.settled) for item in moved] == [(39, below), (38, below)]
    assert moved[0].cause is not None and "given back" in moved[0].cause
    assert device.pinned_bytes == 38 * LAYOUT.nbytes
    assert sum(item.settled is Tier.PINNED for item in arena.placements) == 38
    assert torch.all(arena.banks[39].bytes == 39)
    arena.close()
    assert device.pinned_bytes == 0


def test_a_driver_that_was_told_how_many_layers_to_take_keeps_them_all() -> None:
    device = SimulatedDevice(ROOMY.model_copy(update={"refuse_pin_after_layers": 40}))
    arena = BankArena(LAYOUT, CountingAllocator(), device, RecordingLocker())
    for layer in range(41):
        arena.settle(arena.create(layer), Tier.PINNED)
        assert arena.give_back() == []
    assert sum(item.settled is Tier.PINNED for item in arena.placements) == 40
    arena.close()
