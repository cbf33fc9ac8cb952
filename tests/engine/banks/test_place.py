"""Banks find their tier, or the one below; try-case T20."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.banks.arena import BankArena
from engine.banks.bank import BankLayout, ExpertBank
from engine.banks.cpu_device import CpuDevice
from engine.banks.devices import Device
from engine.banks.simulated_device import SimulatedDevice, SimulatedLocker
from engine.contract.errors import NotEnoughVramError
from engine.contract.formats import WeightFormat
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.shape import ExpertShape
from engine.system import select
from engine.system.protocols import LockRefusedError, PageLocker, PinRefusedError
from tests.support.host_memory import CountingAllocator, EmptyBlock, RecordingLocker

LAYOUT = BankLayout(ExpertShape(n_experts=4, top_k=2, width=32, inner=16), WeightFormat.FP32)
ROOMY = SimulatedGpu(vram_bytes=1 << 24, pin_bytes=1 << 24)


def _arena(device: Device, locker: PageLocker | None = None) -> tuple[BankArena, CountingAllocator]:
    allocator = CountingAllocator()
    return BankArena(LAYOUT, allocator, device, locker or RecordingLocker()), allocator


def _settle_all(arena: BankArena, tiers: list[Tier]) -> list[Tier]:
    for layer, tier in enumerate(tiers):
        bank = arena.create(layer)
        bank.bytes.fill_(layer + 1)
        arena.settle(bank, tier)
    return [placement.settled for placement in arena.placements]


def test_t20_five_of_eight_layers_are_pinned_and_the_others_locked() -> None:
    device = SimulatedDevice(ROOMY.model_copy(update={"refuse_pin_after_layers": 5}))
    arena, allocator = _arena(device)
    settled = _settle_all(arena, [Tier.PINNED] * 8)
    assert settled == [Tier.PINNED] * 5 + [Tier.LOCKED] * 3
    causes = [placement.cause for placement in arena.placements]
    assert causes[:5] == [None] * 5
    assert causes[5] is not None and "refuses after 5 layers" in causes[5] and "(code 2)" in causes[5]
    assert all(cause is not None and "not tried again" in cause for cause in causes[6:])
    target = torch.zeros(LAYOUT.record.bytes, dtype=torch.uint8)
    device.copy_in(target, arena.banks[0].record(0), None)  # no later call fails through a stale error
    assert torch.all(target == 1)
    arena.close()
    assert (device.pinning.layers, allocator.live) == (0, 0)


def test_t20_a_quota_in_bytes_refuses_the_layer_that_would_pass_it() -> None:
    device = SimulatedDevice(ROOMY.model_copy(update={"pin_bytes": 2 * LAYOUT.nbytes + 1}))
    arena, _ = _arena(device)
    assert _settle_all(arena, [Tier.PINNED] * 3) == [Tier.PINNED, Tier.PINNED, Tier.LOCKED]
    assert device.pinning.pinned_bytes == 2 * LAYOUT.nbytes
    arena.close()


def test_t20_a_bank_of_no_bytes_asks_neither_driver_nor_system() -> None:
    device = SimulatedDevice(ROOMY.model_copy(update={"refuse_pin_after_layers": 0}))
    locker = RecordingLocker(most=0)
    arena, _ = _arena(device, locker)
    empty = BankLayout(ExpertShape(n_experts=4, top_k=2, width=32, inner=16), WeightFormat.FP32)
    empty.nbytes = 0
    bank = arena.banks[7] = ExpertBank(7, empty, EmptyBlock())
    placement = arena.settle(bank, Tier.PINNED)
    assert (placement.settled, placement.nbytes, placement.cause) == (Tier.PINNED, 0, None)
    assert arena.settle(bank, Tier.LOCKED).settled is Tier.LOCKED
    arena.close()


def test_t20_when_locking_fails_too_the_layer_is_pageable_and_both_refusals_are_told() -> None:
    device = SimulatedDevice(ROOMY.model_copy(update={"refuse_pin_after_layers": 1}))
    arena, _ = _arena(device, RecordingLocker(most=1))
    assert _settle_all(arena, [Tier.PINNED] * 3) == [Tier.PINNED, Tier.LOCKED, Tier.PAGEABLE]
    cause = arena.placements[2].cause
    assert cause is not None
    assert "could not be pinned" in cause and "could not be locked: cannot allocate memory (code 12)" in cause
    arena.close()


def test_a_vram_layer_leaves_the_host_at_once() -> None:
    device = SimulatedDevice(ROOMY)
    arena, allocator = _arena(device)
    _settle_all(arena, [Tier.VRAM, Tier.VRAM, Tier.LOCKED])
    assert allocator.live == 1
    assert device.allocated == {"expert layers": 2 * LAYOUT.nbytes}
    assert torch.all(arena.banks[1].record(3) == 2)
    arena.close()
    assert (allocator.live, device.allocated) == (0, {})


def test_a_vram_layer_that_does_not_fit_fails_with_the_missing_bytes() -> None:
    device = SimulatedDevice(ROOMY.model_copy(update={"vram_bytes": LAYOUT.nbytes + 10}))
    arena, allocator = _arena(device)
    with pytest.raises(NotEnoughVramError) as why:
        _settle_all(arena, [Tier.VRAM, Tier.VRAM])
    assert why.value.short_bytes == LAYOUT.nbytes - 10
    assert "GPU memory" in why.value.sentence
    arena.close()
    assert allocator.live == 0


def test_a_pageable_layer_is_neither_pinned_nor_locked() -> None:
    locker = RecordingLocker()
    arena, _ = _arena(CpuDevice(), locker)
    assert _settle_all(arena, [Tier.PAGEABLE]) == [Tier.PAGEABLE]
    assert locker.locked == {}
    arena.close()


def test_the_cpu_pins_nothing() -> None:
    with pytest.raises(PinRefusedError, match="there is no GPU"):
        CpuDevice().pin(4096, 4096)


def test_the_simulated_system_refuses_locks_after_so_many_layers() -> None:
    inner = RecordingLocker()
    locker = SimulatedLocker(inner, 1)
    locker.lock(4096, 10)
    with pytest.raises(LockRefusedError, match="refuses after 1 layers"):
        locker.lock(8192, 10)
    locker.unlock(4096, 10)
    locker.lock(8192, 10)
    assert inner.locked == {8192: 10}


@pytest.fixture
def locked_bytes() -> Iterator[object]:
    """Reads how much this process has locked, from the kernel and not from us."""
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")

    def read() -> int:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmLck"))

    yield read


def test_the_kernel_counts_exactly_the_locked_banks(locked_bytes: object) -> None:
    assert callable(locked_bytes)
    before = locked_bytes()
    arena, _ = _arena(CpuDevice(), select.page_locker())
    _settle_all(arena, [Tier.LOCKED] * 3 + [Tier.PAGEABLE])
    assert locked_bytes() - before == 3 * LAYOUT.nbytes
    arena.close()
    assert locked_bytes() == before
