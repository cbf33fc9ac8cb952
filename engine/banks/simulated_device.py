"""A GPU that does not exist: host memory under the limits of a plan, with refusals on demand.

It runs every path of the vram and pinned tiers on a machine without a GPU, and is labelled as simulated everywhere.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from typing_extensions import override

from engine.banks.cpu_device import CpuDevice
from engine.banks.devices import Account, Mark
from engine.banks.pin import MARGIN_BYTES, PIN_CHUNK_BYTES, Pinning
from engine.contract.plan import SimulatedGpu
from engine.contract.units import gib
from engine.system.protocols import LockRefusedError, PageLocker, PinRefusedError

OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation, what a spent pin quota answers
ALREADY_REGISTERED = 712  # cudaErrorHostMemoryAlreadyRegistered


class SimulatedDriver:
    """Registers host memory up to a quota. Like a real driver it goes on refusing once it has refused, and keeps the
    error for the next call until somebody clears it."""

    def __init__(self, quota_bytes: int) -> None:
        self._quota_bytes = quota_bytes
        self._ranges: dict[int, int] = {}
        self._spoilt = False
        self.refuse_words: str | None = None  # set: refuse the next call with these words
        self.last_error: str | None = None

    def register(self, address: int, nbytes: int) -> None:
        """Count the range against the quota.

        Raises:
            PinRefusedError: over the quota, told to refuse, or refused before.
        """
        used = sum(self._ranges.values())
        if nbytes == 0:
            raise self._refuse(nbytes, 1, "invalid value")
        if address in self._ranges:
            raise self._refuse(nbytes, ALREADY_REGISTERED, "the memory is registered already")
        if self._spoilt:
            raise self._refuse(nbytes, OUT_OF_MEMORY, "out of memory")
        if self.refuse_words is not None:
            raise self._refuse(nbytes, OUT_OF_MEMORY, self.refuse_words)
        if used + nbytes > self._quota_bytes:
            words = f"out of memory, {gib(used)} of {gib(self._quota_bytes)} are pinned"
            raise self._refuse(nbytes, OUT_OF_MEMORY, words)
        self._ranges[address] = nbytes

    def _refuse(self, nbytes: int, code: int, words: str) -> PinRefusedError:
        self._spoilt = True
        self.last_error = words
        return PinRefusedError(asked_bytes=nbytes, code=code, words=words)

    @property
    def pinned_bytes(self) -> int:
        """Of all ranges."""
        return sum(self._ranges.values())

    def unregister(self, address: int) -> None:
        """Give a range back."""
        del self._ranges[address]

    def clear_error(self) -> None:
        """Forget the error of a refused call, as cudaGetLastError does."""
        self.last_error = None

    def check_copy(self, address: int, nbytes: int) -> None:
        """Refuse a copy that spans two registrations, as CUDA does."""
        inside = [start for start, size in self._ranges.items() if start < address + nbytes and address < start + size]
        if len(inside) > 1:
            raise RuntimeError(f"invalid argument: a copy of {nbytes} B spans {len(inside)} registrations")

    def check(self) -> None:
        """Report the error of an earlier call, as the next launch on a real GPU would."""
        if self.last_error is not None:
            raise RuntimeError(f"stale error of an earlier call: {self.last_error}")


class SimulatedDevice(CpuDevice):
    """Enforces `limits.vram_bytes` on what is allocated and reserved, and `limits.pin_bytes` on what is pinned."""

    name = "simulated GPU"
    simulated = True
    has_vram = True

    def __init__(self, limits: SimulatedGpu, *, chunk_bytes: int = PIN_CHUNK_BYTES) -> None:
        super().__init__()
        self._limits = limits
        self._account = Account(limits.vram_bytes)
        self.driver = SimulatedDriver(limits.pin_bytes)
        ordered = limits.refuse_pin_after_layers is not None  # no quota is spent, so there is no room to give back
        self.pinning = Pinning(
            self.driver, self.driver.clear_error, chunk_bytes=chunk_bytes, margin_bytes=0 if ordered else MARGIN_BYTES
        )
        self._buffers: set[int] = set()  # pinned and no layers

    @property
    @override
    def pinned_bytes(self) -> int:
        return self.driver.pinned_bytes

    @override
    def allocate(self, nbytes: int, what: str) -> Tensor:
        self._account.add(nbytes, what)
        return torch.zeros(nbytes, dtype=torch.uint8)

    @override
    def pin(self, address: int, nbytes: int) -> None:
        after = self._limits.refuse_pin_after_layers
        if after is not None and self.pinning.layers - len(self._buffers) >= after:
            pinned = gib(self.pinning.pinned_bytes)
            self.driver.refuse_words = f"the simulated driver refuses after {after} layers, {pinned} are pinned"
        self.pinning.pin(address, nbytes)

    @override
    def pin_buffer(self, address: int, nbytes: int) -> None:
        self._buffers.add(address)
        try:
            self.pin(address, nbytes)
        except BaseException:
            self._buffers.discard(address)
            raise

    @override
    def unpin(self, address: int) -> None:
        self.pinning.unpin(address)
        self._buffers.discard(address)

    @override
    def distrust(self, address: int) -> PinRefusedError:
        return self.pinning.distrust(address)

    @override
    def owes(self, nbytes: int) -> bool:
        return self.pinning.owes(nbytes)

    @override
    def heed(self, check: Callable[[], None]) -> None:
        self.pinning.check = check

    @override
    def copy_in(self, target: Tensor, source: Tensor, after: Mark | None) -> Mark | None:
        self.driver.check()
        for into, out_of in self.pinning.cut(target, source):
            self.driver.check_copy(into.data_ptr(), into.nbytes)
            self.driver.check_copy(out_of.data_ptr(), out_of.nbytes)
            super().copy_in(into, out_of, after)
        return None


class SimulatedLocker:
    """A page locker that refuses once `after_layers` ranges are locked."""

    def __init__(self, inner: PageLocker, after_layers: int) -> None:
        self._inner = inner
        self._after_layers = after_layers
        self._locked: set[int] = set()

    def lock(self, address: int, nbytes: int) -> None:
        """Lock, or refuse on demand.

        Raises:
            LockRefusedError: the limit is reached, or the system refused.
        """
        if len(self._locked) >= self._after_layers:
            words = f"the simulated system refuses after {self._after_layers} layers"
            raise LockRefusedError(asked_bytes=nbytes, code=None, words=words)
        self._inner.lock(address, nbytes)
        self._locked.add(address)

    def unlock(self, address: int, nbytes: int) -> None:
        """Undo `lock`."""
        self._inner.unlock(address, nbytes)
        self._locked.discard(address)
