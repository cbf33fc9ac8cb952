"""The CPU as the device: no VRAM, no pinning; dense weights and KV cache are in RAM."""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.banks.devices import Account, Mark, Room
from engine.banks.host_refusal import host_refusal
from engine.system.protocols import PinRefusedError


class CpuDevice:
    """Everything happens at once, so marks are None."""

    name = "CPU"
    simulated = False
    has_vram = False

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        self._account = Account(None)

    @property
    def allocated(self) -> dict[str, int]:
        return dict(self._account.lines)

    @property
    def room(self) -> Room | None:
        return self._account.room

    @property
    def pinned_bytes(self) -> int:
        return 0

    def allocate(self, nbytes: int, what: str) -> Tensor:
        try:
            tensor = torch.zeros(nbytes, dtype=torch.uint8)
        except RuntimeError as cause:  # torch has no type of its own for a failed host allocation
            raise host_refusal(nbytes, what, cause) from cause
        self._account.add(nbytes, what)
        return tensor

    def reserve(self, nbytes: int, what: str) -> None:
        self._account.add(nbytes, what)

    def release(self, nbytes: int, what: str) -> None:
        self._account.take(nbytes, what)

    def pin(self, address: int, nbytes: int) -> None:
        raise PinRefusedError(asked_bytes=nbytes, code=None, words="there is no GPU")

    def pin_buffer(self, address: int, nbytes: int) -> None:
        self.pin(address, nbytes)

    def unpin(self, address: int) -> None:
        raise ValueError("nothing is pinned without a GPU")

    def distrust(self, address: int) -> PinRefusedError:
        raise ValueError("nothing is pinned without a GPU")

    def owes(self, nbytes: int) -> bool:
        return False

    def heed(self, check: Callable[[], None]) -> None:
        return None

    def mark(self) -> Mark | None:
        return None

    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        target.copy_(source)
        return None

    def wait(self, mark: Mark | None) -> None:
        return None

    def reach(self, mark: Mark | None) -> None:
        return None

    def synchronize(self) -> None:
        return None

    def close(self) -> None:
        self._account.lines.clear()
