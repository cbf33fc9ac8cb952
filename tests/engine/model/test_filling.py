"""Banks are filled one ahead of the one that settles, and never more than two that have not settled are in memory."""

import threading

import pytest
from typing_extensions import override

from engine.banks.simulated_device import SimulatedDevice
from engine.checkpoint.meter import LoadCancelledError
from engine.contract.plan import SimulatedGpu
from engine.model.build import Drivers, load_model
from engine.system.protocols import HostBlock
from tests.engine.model.conftest import Load, Tiny
from tests.support.disks import Disk
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.tiny_models import plan_for

ROOMY = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)


class _Allocator(CountingAllocator):
    """Remembers the most blocks that were out at once."""

    most = 0

    @override
    def allocate(self, nbytes: int) -> HostBlock:
        block = super().allocate(nbytes)
        self.most = max(self.most, self.live)
        return block


class _Locker(RecordingLocker):
    """Locks the first layer only when bytes of a later one have been read."""

    def __init__(self, memory: CountingAllocator) -> None:
        super().__init__()
        self._memory = memory
        self.read_ahead = threading.Event()

    @override
    def lock(self, address: int, nbytes: int) -> None:
        assert self.read_ahead.wait(60), "nothing is read while a layer settles"
        super().lock(address, nbytes)


def test_the_next_layer_is_read_while_one_is_locked(tiny: Tiny, load: Load) -> None:
    memory = CountingAllocator()
    locker = _Locker(memory)

    def answer(target: memoryview) -> None:
        if len(memory.blocks) == 2 and any(memory.blocks[1].buffer):
            locker.read_ahead.set()

    drivers = Drivers(SimulatedDevice(ROOMY), memory, locker, Disk(answer).open)
    model = load(plan_for(tiny("mixtral"), "llll"), drivers=drivers)
    assert len(model.residency().layers) == 4


def test_layers_on_their_way_to_vram_are_at_most_two_in_host_memory(tiny: Tiny, load: Load) -> None:
    for family in ("mixtral", "gpt_oss"):
        memory = _Allocator()
        load(plan_for(tiny(family), "vvvv"), drivers=Drivers(SimulatedDevice(ROOMY), memory, RecordingLocker()))
        assert memory.most == 2
        assert memory.live == 0


def test_a_stop_between_two_layers_gives_back_the_one_that_is_read_ahead(tiny: Tiny) -> None:
    memory, locker = CountingAllocator(), RecordingLocker()
    drivers = Drivers(SimulatedDevice(ROOMY), memory, locker)

    def cancelled() -> bool:
        return len(locker.locked) == 2

    plan = plan_for(tiny("mixtral"), "llll")
    with pytest.raises(LoadCancelledError):
        load_model(plan, report=lambda _: None, cancelled=cancelled, drivers=drivers)
    assert len(memory.blocks) >= 3
    assert (memory.live, locker.locked) == (0, {})
