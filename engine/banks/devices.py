"""What the engine asks of the thing that computes: memory with a ledger, pinning, and copies that may overlap."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.contract.errors import NotEnoughVramError
from engine.system.protocols import PinRefusedError

_FIX = "Choose a shorter context, fewer layers in GPU memory, or close programs that use the GPU."


class Mark(Protocol):
    """A point in the device's work: everything queued before it. None where nothing runs beside the caller."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a device has and has left, counted apart from its ledger."""

    total_bytes: int
    free_bytes: int


class Device(Protocol):
    """A GPU, a simulated GPU, or the CPU. `allocate` and `reserve` write the ledger that the residency report shows."""

    name: str
    simulated: bool
    has_vram: bool  # False: there are no vram and pinned tiers
    torch_device: torch.device

    @property
    def allocated(self) -> dict[str, int]:
        """Bytes per purpose, as really allocated or reserved."""
        ...

    @property
    def room(self) -> Room | None:
        """What the device has left; None where others use it too, so that it says nothing of our ledger."""
        ...

    @property
    def pinned_bytes(self) -> int:
        """Bytes of layers that the driver holds registered."""
        ...

    def allocate(self, nbytes: int, what: str) -> Tensor:
        """A zeroed uint8 tensor [nbytes] on the device, counted under `what`.

        Raises:
            NotEnoughVramError: the device has not that much.
            NotEnoughRamError, NotEnoughCommitError, AllocationRefusedError: the same where the device is the CPU.
        """
        ...

    def reserve(self, nbytes: int, what: str) -> None:
        """Count bytes that somebody else allocates, such as transformers for the dense weights.

        Raises:
            NotEnoughVramError: they would not fit.
        """
        ...

    def release(self, nbytes: int, what: str) -> None:
        """Take bytes out of the ledger; the tensors must be dropped by their owner."""
        ...

    def pin(self, address: int, nbytes: int) -> None:
        """Register one layer's filled host memory for copies of the GPU. 0 B: nothing to do.

        Raises:
            PinRefusedError: refused; nothing of the range stays registered.
        """
        ...

    def pin_buffer(self, address: int, nbytes: int) -> None:
        """The same for memory that is no layer but serves all of them.

        Raises:
            PinRefusedError: refused; nothing of the range stays registered.
        """
        ...

    def unpin(self, address: int) -> None:
        """Undo `pin` or `pin_buffer` of the range that begins there."""
        ...

    def distrust(self, address: int) -> PinRefusedError:
        """Undo a `pin` whose bytes do not arrive on the device, and pin nothing again; returns the error to raise."""
        ...

    def owes(self, nbytes: int) -> bool:
        """Whether a pinned layer of this size is to be unpinned: the driver has refused, and needs room to work."""
        ...

    def heed(self, check: Callable[[], None]) -> None:
        """Call `check` before each chunk of a pin from now on; what it raises ends the pin, with nothing left."""
        ...

    def mark(self) -> Mark | None:
        """The point the computation has reached."""
        ...

    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        """Start copying host bytes into `target`, not before the computation has passed `after`."""
        ...

    def wait(self, mark: Mark | None) -> None:
        """Let the computation go on only when the copy has arrived."""
        ...

    def reach(self, mark: Mark | None) -> None:
        """Hold the calling thread until the device has got there; `wait` lets it go on and holds the computation."""
        ...

    def synchronize(self) -> None:
        """Wait for everything."""
        ...

    def close(self) -> None:
        """Forget everything that was allocated here."""
        ...


class Account:
    """Bytes per purpose under an optional limit. The three devices keep one each."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._free_bytes = limit_bytes
        self.lines: dict[str, int] = {}

    @property
    def total_bytes(self) -> int:
        """Of all purposes."""
        return sum(self.lines.values())

    @property
    def room(self) -> Room | None:
        """Limit and what is left of it; None without a limit."""
        if self._limit_bytes is None or self._free_bytes is None:
            return None
        return Room(self._limit_bytes, self._free_bytes)

    def add(self, nbytes: int, what: str) -> None:
        """Count bytes.

        Raises:
            NotEnoughVramError: over the limit; nothing is counted.
        """
        if self._limit_bytes is not None and self.total_bytes + nbytes > self._limit_bytes:
            raise self.refusal(nbytes, self._limit_bytes - self.total_bytes, what)
        self.lines[what] = self.lines.get(what, 0) + nbytes
        if self._free_bytes is not None:
            self._free_bytes -= nbytes

    def take(self, nbytes: int, what: str) -> None:
        """Uncount bytes; a purpose without bytes disappears."""
        left = self.lines[what] - nbytes
        if self._free_bytes is not None:
            self._free_bytes += nbytes
        if left:
            self.lines[what] = left
        else:
            del self.lines[what]

    def refusal(self, needed_bytes: int, available_bytes: int, what: str) -> NotEnoughVramError:
        """The error for bytes that do not fit."""
        return NotEnoughVramError(
            needed_bytes=needed_bytes, available_bytes=available_bytes, fix=_FIX, what=what[:1].upper() + what[1:]
        )
