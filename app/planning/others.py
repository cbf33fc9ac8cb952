"""Memory that other programs hold: what is known of them, and the machine as it would be without some of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.contract.facts import HardwareFacts, Reading, Source
from engine.contract.units import GIB, gib

STEP_BYTES = GIB // 10  # what is asked for is said with one decimal
_MOST_NAMED = 2
_WORTH_NAMING_BYTES = GIB // 4


@dataclass(frozen=True, slots=True)
class Program:
    """All processes of one name together."""

    name: str
    ram_bytes: int = 0
    vram_bytes: int = 0


def ram_of_others(facts: HardwareFacts) -> int:
    """RAM in use now; 0 where nobody knows."""
    total, available = facts.ram_total.value, facts.ram_available.value
    return 0 if total is None or available is None else max(0, total - available)


def vram_of_others(facts: HardwareFacts) -> int:
    """GPU memory in use now; 0 where nobody knows."""
    gpu = facts.cuda_gpu
    return 0 if gpu is None else gpu.vram_used.value or 0


def closed(facts: HardwareFacts, *, ram_bytes: int = 0, vram_bytes: int = 0) -> HardwareFacts:
    """The machine once programs are closed that hold so much. What they held of RAM was promised to them, too."""
    gpu = facts.cuda_gpu
    gpus = tuple(
        one.model_copy(update={"vram_used": _moved(one.vram_used, -vram_bytes)}) if one is gpu else one
        for one in facts.gpus
    )
    return facts.model_copy(
        update={
            "ram_available": _moved(facts.ram_available, ram_bytes, most=facts.ram_total.value),
            "commit_used": _moved(facts.commit_used, -ram_bytes),
            "gpus": gpus,
        }
    )


def all_closed(facts: HardwareFacts) -> HardwareFacts:
    """The machine without any other program."""
    return closed(facts, ram_bytes=ram_of_others(facts), vram_bytes=vram_of_others(facts))


def least(works: Callable[[int], bool], most_bytes: int) -> int | None:
    """The fewest bytes that are enough, in steps of `STEP_BYTES`, where more is never worse; None if not even all."""
    if most_bytes <= 0 or not works(most_bytes):
        return None
    low, high = 0, -(-most_bytes // STEP_BYTES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle * STEP_BYTES) else (middle, high)
    return min(high * STEP_BYTES, most_bytes)


def largest(programs: Sequence[Program], size: Callable[[Program], int]) -> str:
    """ ": 6.1 GiB by chrome.exe and 1.2 GiB by Teams.exe" for the ones worth naming, or nothing."""
    known = sorted(programs, key=size, reverse=True)[:_MOST_NAMED]
    named = [f"{gib(size(one))} by {one.name}" for one in known if size(one) >= _WORTH_NAMING_BYTES]
    return f": {' and '.join(named)}" if named else ""


def _moved(reading: Reading, by_bytes: int, most: int | None = None) -> Reading:
    if reading.value is None:
        return reading
    value = max(0, reading.value + by_bytes)
    return Reading(value=value if most is None else min(value, most), source=Source.ASSUMED)
