"""Drivers of a simulated machine that refuse once, at a chosen call, and can be compared with what the engine says."""

from dataclasses import dataclass, field

from torch import Tensor
from typing_extensions import override

from engine.banks.pin import PIN_CHUNK_BYTES
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.errors import NotEnoughCommitError
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.residency import ResidencyReport
from engine.model.build import Drivers
from engine.system.protocols import HostBlock, LockRefusedError, PinRefusedError
from tests.support.host_memory import CountingAllocator, RecordingLocker


@dataclass
class Script:
    """Counts the calls that may be refused; the one with number `refuse_at` is. None: none is."""

    refuse_at: int | None = None
    calls: int = 0
    refused: list[str] = field(default_factory=list)

    def arm(self, refuse_at: int | None) -> None:
        self.refuse_at, self.calls = refuse_at, 0

    def refuses(self, what: str) -> bool:
        number, self.calls = self.calls, self.calls + 1
        if number == self.refuse_at:
            self.refused.append(what)
            return True
        return False


class RefusingDevice(SimulatedDevice):
    """A GPU that refuses VRAM and pins on demand. A refused pin is of that call alone: the script decides the rest."""

    def __init__(self, limits: SimulatedGpu, script: Script, *, chunk_bytes: int = PIN_CHUNK_BYTES) -> None:
        super().__init__(limits, chunk_bytes=chunk_bytes)
        self._script = script
        self.pinned: dict[int, int] = {}
        self.buffers: set[int] = set()  # pinned and no layers

    @override
    def allocate(self, nbytes: int, what: str) -> Tensor:
        if self._script.refuses("vram"):
            raise self._account.refusal(nbytes, 0, what)
        return super().allocate(nbytes, what)

    @override
    def reserve(self, nbytes: int, what: str) -> None:
        if self._script.refuses("vram"):
            raise self._account.refusal(nbytes, 0, what)
        super().reserve(nbytes, what)

    @override
    def pin(self, address: int, nbytes: int) -> None:
        if self._script.refuses("pin"):
            raise PinRefusedError(asked_bytes=nbytes, code=2, words="out of memory")
        super().pin(address, nbytes)
        self.pinned[address] = nbytes

    @override
    def pin_buffer(self, address: int, nbytes: int) -> None:
        super().pin_buffer(address, nbytes)
        self.buffers.add(address)

    @override
    def unpin(self, address: int) -> None:
        super().unpin(address)
        del self.pinned[address]
        self.buffers.discard(address)

    @override
    def distrust(self, address: int) -> PinRefusedError:
        del self.pinned[address]
        return super().distrust(address)


class RefusingLocker(RecordingLocker):
    """A system that refuses locks on demand."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    @override
    def lock(self, address: int, nbytes: int) -> None:
        if self._script.refuses("lock"):
            raise LockRefusedError(asked_bytes=nbytes, code=12, words="cannot allocate memory")
        assert address not in self.locked
        super().lock(address, nbytes)


class RefusingAllocator(CountingAllocator):
    """A system that refuses host memory on demand."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    @override
    def allocate(self, nbytes: int) -> HostBlock:
        if self._script.refuses("commit"):
            raise NotEnoughCommitError(needed_bytes=nbytes, available_bytes=0, fix="Close programs.")
        return super().allocate(nbytes)


class Machine:
    """A simulated machine: its drivers, and what they hold."""

    def __init__(self, limits: SimulatedGpu) -> None:
        self.script = Script()
        self.device = RefusingDevice(limits, self.script)
        self.locker = RefusingLocker(self.script)
        self.memory = RefusingAllocator(self.script)
        self.drivers = Drivers(self.device, self.memory, self.locker)

    def held(self) -> dict[Tier, list[int]]:
        """Sizes of the layers in every tier, as drivers and system hold them."""
        live = {block.address: block.nbytes for block in self.memory.blocks if _live(block)}
        others = [size for address, size in live.items() if address not in self.device.pinned | self.locker.locked]
        assert self.device.pinned.keys() <= live.keys() and self.locker.locked.keys() <= live.keys()
        assert not self.device.pinned.keys() & self.locker.locked.keys()
        return {
            Tier.VRAM: [self.device.allocated.get("expert layers", 0)],
            Tier.PINNED: sorted(
                size for address, size in self.device.pinned.items() if address not in self.device.buffers
            ),
            Tier.LOCKED: sorted(self.locker.locked.values()),
            Tier.PAGEABLE: sorted(others),
        }

    def nothing_held(self) -> bool:
        """No block, no lock, no pin, no byte of VRAM."""
        empty = self.held() == {Tier.VRAM: [0], Tier.PINNED: [], Tier.LOCKED: [], Tier.PAGEABLE: []}
        return empty and self.device.pinned == {} and self.device.allocated == {}


def reported(report: ResidencyReport) -> dict[Tier, list[int]]:
    """The same as a residency report says it."""
    sizes = {tier: sorted(layer.bytes for layer in report.layers if layer.settled is tier) for tier in Tier}
    return {**sizes, Tier.VRAM: [sum(sizes[Tier.VRAM])]}


def _live(block: HostBlock) -> bool:
    try:
        return len(block.buffer) > 0
    except ValueError:  # a released memoryview
        return False
