"""Memory that a left-over process holds, as far as a plan is concerned."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.contract.facts import HardwareFacts, Reading
from engine.contract.units import gib


@dataclass(frozen=True, slots=True)
class Held:
    """One left-over process, or a tree of them, that can be ended."""

    pid: int
    name: str
    ram_bytes: int = 0
    vram_bytes: int = 0
    pinned_bytes: int = 0

    @property
    def words(self) -> str:
        """ "python.exe (PID 4188), which holds 30.1 GiB of RAM and 14.3 GiB of VRAM"."""
        pools = ((self.ram_bytes, "RAM"), (self.vram_bytes, "VRAM"), (self.pinned_bytes, "pinned memory"))
        *most, last = [f"{gib(size)} of {pool}" for size, pool in pools if size] or [""]
        amounts = f"{', '.join(most)} and {last}" if most else last
        return f"{self.name} (PID {self.pid})" + (f", which holds {amounts}" if amounts else "")


def facts_without(facts: HardwareFacts, ended: Sequence[Held]) -> HardwareFacts:
    """The machine as it will be once these processes are gone."""
    ram, vram, pinned = (
        sum(sizes) for sizes in zip(*((h.ram_bytes, h.vram_bytes, h.pinned_bytes) for h in ended), strict=True)
    )
    return freed(facts, ram_bytes=ram, commit_bytes=ram, vram_bytes=vram, pinned_bytes=pinned)


def freed(
    facts: HardwareFacts, *, ram_bytes: int = 0, commit_bytes: int = 0, vram_bytes: int = 0, pinned_bytes: int = 0
) -> HardwareFacts:
    """The machine as it is with so much less in use; negative amounts are in use beside. Unknown stays unknown."""
    gpu = facts.cuda_gpu
    changed = (
        None
        if gpu is None
        else gpu.model_copy(
            update={
                "vram_used": _moved(gpu.vram_used, -vram_bytes),
                "shared_used": _moved(gpu.shared_used, -pinned_bytes),
            }
        )
    )
    return facts.model_copy(
        update={
            "ram_available": _moved(facts.ram_available, ram_bytes, most=facts.ram_total.value),
            "commit_used": _moved(facts.commit_used, -commit_bytes),
            "gpus": tuple(changed if one is gpu and changed is not None else one for one in facts.gpus),
        }
    )


def _moved(reading: Reading, by_bytes: int, most: int | None = None) -> Reading:
    if reading.value is None:
        return reading
    value = max(0, reading.value + by_bytes)
    return reading.model_copy(update={"value": value if most is None else min(value, most)})
