"""A driver for the probe of pinned memory: a quota, and the bad habits of real ones."""

from dataclasses import dataclass, field

from engine.contract.units import MIB
from engine.system.protocols import AllocationRefusedError, HostBlock, PinRefusedError

OUT_OF_MEMORY = 2


@dataclass
class FakePinDriver:
    """Pins up to a quota; once it has refused it refuses everything, smaller amounts too."""

    quota_bytes: int
    vram_bytes: int = 0
    ranges: dict[int, int] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    held_bytes: int = 0
    spoilt: bool = False
    closed: bool = False

    def register(self, address: int, nbytes: int) -> None:
        """Pin, or refuse for good."""
        self.calls.append(nbytes)
        if self.spoilt or sum(self.ranges.values()) + nbytes > self.quota_bytes:
            self.spoilt = True
            raise PinRefusedError(asked_bytes=nbytes, code=OUT_OF_MEMORY, words="out of memory")
        self.ranges[address] = nbytes

    def unregister(self, address: int) -> None:
        """Give a range back; it must be one that was pinned."""
        del self.ranges[address]

    def hold_vram(self, nbytes: int) -> None:
        """Take GPU memory, or refuse."""
        if self.held_bytes + nbytes > self.vram_bytes:
            raise AllocationRefusedError(asked_bytes=nbytes, code=OUT_OF_MEMORY, words="out of memory")
        self.held_bytes += nbytes

    def close(self) -> None:
        """Note that the GPU was given back."""
        self.closed = True


@dataclass
class PaperBlock:
    """A block that has a size and an address and no memory."""

    address: int
    nbytes: int
    populated: bool = False
    freed: bool = False

    @property
    def buffer(self) -> memoryview:
        """There is none."""
        return memoryview(b"")

    def populate(self) -> None:
        """Note that the pages were touched."""
        self.populated = True

    def free(self) -> None:
        """Note that it was given back."""
        self.freed = True


@dataclass
class PaperAllocator:
    """Hands out blocks without memory, so that a probe of 94 GiB fits a test."""

    blocks: list[PaperBlock] = field(default_factory=list)

    def allocate(self, nbytes: int) -> HostBlock:
        """The next block."""
        block = PaperBlock(address=(len(self.blocks) + 1) * 1024 * MIB, nbytes=nbytes)
        self.blocks.append(block)
        return block
