"""`--force 0-3=vram,17=locked`: single layers and the tier each of them must get."""

from engine.contract.errors import UsageError
from engine.contract.plan import Tier

_FIX = "Write it like 0-3=vram,17=locked; tiers are vram, pinned, locked and pageable."
_MOST_LAYERS = 10_000


def read_forced(text: str) -> dict[int, Tier]:
    """Layers to tiers.

    Raises:
        UsageError: not layers and a tier, or a layer named twice.
    """
    found: dict[int, Tier] = {}
    for part in text.split(","):
        layers, _, tier = part.strip().partition("=")
        first, dash, last = layers.partition("-")
        numbers = [first.strip(), last.strip()] if dash else [first.strip()]
        if tier not in set(Tier) or not all(number.isascii() and number.isdecimal() for number in numbers):
            raise UsageError(f"{part.strip()!r} does not force a layer.", _FIX)
        ends = [int(number[:6]) for number in numbers]
        if not ends[0] <= ends[-1] < _MOST_LAYERS:
            raise UsageError(f"{layers.strip()} is not a range of layers.", _FIX)
        for layer in range(ends[0], ends[-1] + 1):
            if layer in found:
                raise UsageError(f"Layer {layer} is forced twice.", _FIX)
            found[layer] = Tier(tier)
    return found
