"""Waits until the memory of processes that have ended has come back, and says how much it was."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from engine.contract.units import MIB, gib
from engine.system.protocols import MemoryUse

POLL_S = 0.25
SETTLE_S = 60.0
_BACK_SHARE = 0.75  # of the GPU memory; counters of the driver and of the process never agree exactly
_STILL_BYTES = 64 * MIB  # between two polls: other programs never stand quite still


@dataclass(frozen=True, slots=True)
class MemoryReturn:
    """What came back, in bytes; None where it cannot be read. `settled` is False if GPU memory is still missing."""

    vram_bytes: int | None
    ram_bytes: int | None
    pinned_bytes: int | None
    elapsed_s: float
    settled: bool
    missing_vram_bytes: int = 0

    @property
    def words(self) -> str:
        """One sentence; empty if nothing worth a word came back."""
        if not self.settled:
            return (
                f"{gib(self.missing_vram_bytes)} of VRAM are still in use. "
                "The driver has not released them; sign out or restart."
            )
        pools = ((self.vram_bytes, "VRAM"), (self.ram_bytes, "RAM"))
        parts = [f"{gib(size)} of {pool}" for size, pool in pools if size and size >= MIB]
        return f"{' and '.join(parts)} came back in {self.elapsed_s:.1f} s." if parts else ""


def wait_for_return(
    before: MemoryUse,
    read: Callable[[], MemoryUse],
    *,
    expected_vram: int | None = None,
    since: float | None = None,
    give_up: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    settle_s: float = SETTLE_S,
) -> MemoryReturn:
    """Poll until the GPU memory is back and VRAM, pinned memory and RAM stand still, at most `settle_s`.

    Args:
        before: the readings while the processes lived.
        expected_vram: what they held; None: not known, so that standing still is enough.
        since: when they were told to end, on `clock`; None: now.
        give_up: asked while waiting; a program that quits need not know how the wait ends.
    """
    started = clock() if since is None else since

    def enough(now: MemoryUse) -> bool:
        back = _back(before.vram_used, now.vram_used)
        return expected_vram is None or back is None or back >= expected_vram * _BACK_SHARE

    last = read()
    while clock() < started + settle_s and not give_up():
        sleep(POLL_S)
        now = read()
        still = _still(last, now)
        last = now
        if still and enough(now):
            break
    vram = _back(before.vram_used, last.vram_used)
    return MemoryReturn(
        vram_bytes=vram,
        ram_bytes=_back(before.ram_used, last.ram_used),
        pinned_bytes=_back(before.shared_used, last.shared_used),
        elapsed_s=clock() - started,
        settled=enough(last),
        missing_vram_bytes=max((expected_vram or 0) - (vram or 0), 0),
    )


def _still(one: MemoryUse, other: MemoryUse) -> bool:
    pairs = (
        (one.vram_used, other.vram_used),
        (one.ram_used, other.ram_used),
        (one.shared_used, other.shared_used),
    )
    return all(a is None or b is None or abs(a - b) <= _STILL_BYTES for a, b in pairs)


def _back(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, before - after)
