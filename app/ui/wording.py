"""How numbers and states are said. Plain, exact, short; GiB with one decimal, tokens with thousands separators."""

from engine.contract.plan import Tier
from engine.contract.units import GIB, gib

TIER_NAMES = {
    Tier.VRAM: "VRAM",
    Tier.PINNED: "Pinned RAM",
    Tier.LOCKED: "Locked RAM",
    Tier.PAGEABLE: "Pageable RAM",
}

TIER_WORDS = {Tier.VRAM: "VRAM", Tier.PINNED: "pinned", Tier.LOCKED: "locked", Tier.PAGEABLE: "pageable"}

TIER_EXPLAINED = {
    Tier.VRAM: "in VRAM, no copy needed",
    Tier.PINNED: "pinned RAM, the GPU reads it over PCIe",
    Tier.LOCKED: "locked RAM, computed on the CPU",
    Tier.PAGEABLE: "pageable RAM, the system may move it to disk",
}

LONGEST_NAME = 36


def tokens(count: int) -> str:
    """ "33,792 tokens"."""
    return f"{count:,} token{'' if count == 1 else 's'}"


def layers(count: int) -> str:
    """ "8 layers", "1 layer"."""
    return f"{count:,} layer{'' if count == 1 else 's'}"


def counts(per_tier: dict[Tier, int]) -> str:
    """ "8 VRAM, 50 pinned, 4 locked"; tiers without layers are left out."""
    return ", ".join(f"{per_tier[tier]} {TIER_WORDS[tier]}" for tier in Tier if per_tier.get(tier))


def exact_gib(amount_bytes: int) -> str:
    """With two decimals, for a single bank: "1.90 GiB"; smaller amounts as in `gib`."""
    return f"{amount_bytes / GIB:,.2f} GiB" if abs(amount_bytes) >= GIB / 10 else gib(amount_bytes)


def gib_of(part_bytes: int, whole_bytes: int) -> str:
    """ "30.8 of 31.8 GiB"; the unit is said twice where the two differ."""
    part, whole = gib(part_bytes), gib(whole_bytes)
    number, _, unit = part.rpartition(" ")
    if part_bytes == 0 and whole_bytes >= GIB / 10:
        return f"0.0 of {whole}"
    return f"{number} of {whole}" if whole.endswith(f" {unit}") else f"{part} of {whole}"


def shortened(name: str, longest: int) -> str:
    """A long name without its middle."""
    if len(name) <= longest:
        return name
    half = (longest - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def short_name(name: str) -> str:
    """A model's name where more is to be said beside it."""
    return shortened(name, LONGEST_NAME)


def rough_duration(seconds: float) -> str:
    """For what is still to come: "1 s", "20 s", "1 min 52 s", "2 h 5 min"."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def over_minutes(seconds: float) -> str:
    """For what goes on and is told now and then: "over 2 min"."""
    return f"over {max(1, int(seconds // 60))} min" if seconds < 3600 else f"over {int(seconds // 3600)} h"


def duration(seconds: float) -> str:
    """For what was measured: as above, short ones with one decimal: "0.8 s"."""
    return f"{seconds:.1f} s" if seconds < 9.95 else rough_duration(seconds)


def percent(share: float) -> str:
    """ "57 %"."""
    return f"{share * 100:.0f} %"


def rate(bytes_per_s: float) -> str:
    """ "2.5 GiB/s"."""
    return f"{gib(round(bytes_per_s))}/s"
