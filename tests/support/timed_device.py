"""A GPU with two streams on a made-up clock. Copies happen as late as they may, so that a missing wait is seen.

What is copied to is spoilt when the copy is queued and right only once somebody waited for it; a copy out of memory
that the host has overwritten meanwhile brings the wrong bytes.
"""

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from engine.banks.devices import Mark
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.plan import SimulatedGpu

SPOILT = 255


@dataclass(frozen=True, slots=True)
class At:
    """A mark: a time of the clock, and how many copies have arrived by then."""

    seconds: float
    copies: int


@dataclass(frozen=True, slots=True)
class Use:
    """Device memory that was written or read from one time to another."""

    first: int
    last: int
    begin_s: float
    end_s: float

    def meets(self, other: "Use") -> bool:
        """Whether both touch the same byte at the same time."""
        return (
            self.first < other.last
            and other.first < self.last
            and self.begin_s < other.end_s
            and other.begin_s < self.end_s
        )


class TimedDevice(SimulatedDevice):
    """`copy_bytes_s` is the bus; computations are told by `compute`."""

    def __init__(self, copy_bytes_s: float) -> None:
        super().__init__(SimulatedGpu(vram_bytes=1 << 24, pin_bytes=1 << 24))
        self._copy_bytes_s = copy_bytes_s
        self._computed_s = 0.0
        self._copied_s = 0.0
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._arrived = 0
        self._queued = 0
        self.copies: list[Use] = []
        self.reads: list[Use] = []

    @property
    def elapsed_s(self) -> float:
        """When the last computation ends."""
        return self._computed_s

    def compute(self, record: Tensor, seconds: float) -> None:
        """Queue work that reads a record."""
        begin, self._computed_s = self._computed_s, self._computed_s + seconds
        self.reads.append(_use(record, begin, self._computed_s))

    def clashes(self) -> list[tuple[Use, Use]]:
        """Copies into memory that was being read."""
        return [(copy, read) for copy in self.copies for read in self.reads if copy.meets(read)]

    @override
    def mark(self) -> Mark | None:
        return At(self._computed_s, 0)

    @override
    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        begin = max(self._copied_s, after.seconds if isinstance(after, At) else 0.0)
        self._copied_s = begin + source.nbytes / self._copy_bytes_s
        self.copies.append(_use(target, begin, self._copied_s))
        self._pending.append((target, source))
        self._queued += 1
        target.fill_(SPOILT)
        return At(self._copied_s, self._queued)

    @override
    def wait(self, mark: Mark | None) -> None:
        if isinstance(mark, At):
            self._computed_s = max(self._computed_s, mark.seconds)
            self._arrive(mark.copies)

    @override
    def reach(self, mark: Mark | None) -> None:
        if isinstance(mark, At):
            self._arrive(mark.copies)

    @override
    def synchronize(self) -> None:
        self._arrive(self._queued)

    def _arrive(self, copies: int) -> None:
        while self._arrived < copies:
            target, source = self._pending.pop(0)
            target.copy_(source)
            self._arrived += 1


def _use(memory: Tensor, begin_s: float, end_s: float) -> Use:
    return Use(memory.data_ptr(), memory.data_ptr() + memory.nbytes, begin_s, end_s)
