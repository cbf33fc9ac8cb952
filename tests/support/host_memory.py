"""Host memory for tests of banks: the real allocator with a count of what is out, and lockers that refuse."""

from dataclasses import dataclass, field

from engine.system import select
from engine.system.protocols import HostBlock, LockRefusedError


@dataclass
class CountingAllocator:
    """The system's allocator; remembers every block it gave out."""

    blocks: list[HostBlock] = field(default_factory=list)

    def allocate(self, nbytes: int) -> HostBlock:
        """Allocate as the system does."""
        block = select.host_allocator().allocate(nbytes)
        self.blocks.append(block)
        return block

    @property
    def live(self) -> int:
        """Blocks that were not freed: a freed one has no readable buffer any more."""
        return sum(_is_live(block) for block in self.blocks)


def _is_live(block: HostBlock) -> bool:
    try:
        return len(block.buffer) > 0
    except ValueError:  # a released memoryview
        return False


@dataclass
class RecordingLocker:
    """Locks nothing; notes the ranges and refuses after `most` of them."""

    most: int | None = None
    locked: dict[int, int] = field(default_factory=dict)

    def lock(self, address: int, nbytes: int) -> None:
        """Note a range, or refuse."""
        if self.most is not None and len(self.locked) >= self.most:
            raise LockRefusedError(asked_bytes=nbytes, code=12, words="cannot allocate memory")
        self.locked[address] = nbytes

    def unlock(self, address: int, nbytes: int) -> None:
        """Forget a range; it must be one that was locked."""
        assert self.locked.pop(address) == nbytes


@dataclass
class EmptyBlock:
    """A bank without bytes, as layers without routed weights have."""

    address: int = 0
    nbytes: int = 0
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(0)))

    def populate(self) -> None:
        """Nothing to touch."""

    def free(self) -> None:
        """Nothing to free."""
