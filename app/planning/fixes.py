"""The smallest single change that makes an impossible plan possible; each is tried before it is said."""

from collections.abc import Callable
from typing import Any

from app.planning.counts import Room, Shortage
from app.planning.terms import layers
from engine.contract.errors import Number, UsageError
from engine.contract.estimate import KV_PAGE_TOKENS, bank_bytes
from engine.contract.facts import HardwareFacts, Reading, Source
from engine.contract.formats import WeightFormat
from engine.contract.plan import Pool
from engine.contract.units import gib

Fix = tuple[str, dict[str, Number]]


def smallest_fix(room: Room, short: Shortage) -> Fix:
    """A sentence with the change, and the same as numbers. Tried in order of how little it takes away."""
    attempts: dict[Pool, tuple[Callable[[Room, Shortage], Fix | None], ...]] = {
        Pool.VRAM: (_fewer_vram_layers, _shorter_context, _no_pins, _smaller_format),
        Pool.PINNED: (_fewer_pins,),
        Pool.RAM: (_shorter_context, _free_ram, _smaller_format, _pageable),
        Pool.COMMIT: (_shorter_context, _more_commit),
    }
    for attempt in attempts[short.pool]:
        fix = attempt(room, short)
        if fix is not None:
            return fix
    return _hardware(short), {}


def _works(room: Room, tokens: int | None = None, **wishes: Any) -> bool:
    """Whether a plan exists under changed wishes."""
    return _possible(Room(room.shape, room.facts, room.wishes.model_copy(update=wishes)), tokens)


def _possible(room: Room, tokens: int | None = None) -> bool:
    asked = room.wishes.context_tokens if tokens is None else tokens
    try:
        room.counts(room.default_tokens() if asked is None else room.rounded(asked))
    except (Shortage, UsageError):
        return False
    return True


def _largest(works: Callable[[int], bool], below: int) -> int | None:
    """The largest number in 0..below-1 that works, where all smaller ones work too; None if not even 0 does."""
    if below < 1 or not works(0):
        return None
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def _fewer_vram_layers(room: Room, short: Shortage) -> Fix | None:
    wish = room.wishes.vram_layers
    if wish is None:
        return None
    most = _largest(lambda layers: _works(room, vram_layers=layers), wish)
    return None if most is None else (f"Keep {layers(most)} in VRAM.", {"vram_layers": most})


def _shorter_context(room: Room, short: Shortage) -> Fix | None:
    asked = room.wishes.context_tokens
    if asked is None:
        return None
    pages = -(-room.rounded(asked) // KV_PAGE_TOKENS)
    most = _largest(lambda page: _possible(room, (page + 1) * KV_PAGE_TOKENS), pages - 1)
    if most is None:
        return None
    tokens = (most + 1) * KV_PAGE_TOKENS
    return f"Choose a context of at most {tokens:,} tokens.", {"context_tokens": tokens}


def _no_pins(room: Room, short: Shortage) -> Fix | None:
    if room.wishes.pinned_layers == 0 or not _works(room, pinned_layers=0):
        return None
    return "Pin 0 layers: they are computed on the CPU then and need no slots on the GPU.", {"pinned_layers": 0}


def _fewer_pins(room: Room, short: Shortage) -> Fix | None:
    most = room.quota_layers
    if most is None or room.wishes.pinned_layers is None or not _works(room, pinned_layers=most):
        return None
    return f"Pin {layers(most)}.", {"pinned_layers": most}


def _free_ram(room: Room, short: Shortage) -> Fix | None:
    """Only where closing programs can be enough: the machine has the RAM, somebody else uses it."""
    total, available = room.facts.ram_total, room.facts.ram_available
    if total.value is None or available.value is None:
        return None
    needed = available.value + short.needed_bytes - short.available_bytes
    if needed > total.value:
        return None
    freed = room.facts.model_copy(update={"ram_available": _reading(needed)})
    if not _possible(Room(room.shape, freed, room.wishes)):
        return None
    return f"Close other programs until {gib(needed)} of RAM are free.", {"ram_available_bytes": needed}


def _smaller_format(room: Room, short: Shortage) -> Fix | None:
    """The same model with its experts in 4 bits."""
    shape = room.shape
    now = len(shape.moe_layers) * bank_bytes(shape.experts, shape.expert_format)
    small = len(shape.moe_layers) * bank_bytes(shape.experts, WeightFormat.NVFP4)
    smaller = shape.model_copy(update={"expert_format": WeightFormat.NVFP4})
    if small >= now or not _possible(Room(smaller, room.facts, room.wishes)):
        return None
    sentence = f"Choose this model in a smaller format: in NVFP4 its experts take {gib(small)} instead of {gib(now)}."
    return sentence, {"experts_bytes": now, "nvfp4_experts_bytes": small}


def _pageable(room: Room, short: Shortage) -> Fix | None:
    if room.wishes.allow_pageable or not _works(room, allow_pageable=True):
        return None
    return "Allow pageable layers; each token may then have to wait for the disk.", {"allow_pageable": "yes"}


def _more_commit(room: Room, short: Shortage) -> Fix | None:
    missing = short.needed_bytes - short.available_bytes
    limit = room.facts.commit_limit.value
    if limit is None:
        return None
    grown = limit + missing + missing // 8  # the reserve grows with the limit, by at most a 16th
    facts: HardwareFacts = room.facts.model_copy(update={"commit_limit": _reading(grown)})
    if not _possible(Room(room.shape, facts, room.wishes)):
        return None
    return (
        f"Let Windows manage the page file, or make it {gib(grown - limit)} larger.",
        {"page_file_growth_bytes": grown - limit},
    )


def _hardware(short: Shortage) -> str:
    match short.pool:
        case Pool.VRAM:
            return "Choose a smaller model, or a GPU with more memory."
        case Pool.PINNED:
            return "Clear the layers that are forced to be pinned."
        case _:
            return "Choose a smaller model."


def _reading(value: int) -> Reading:
    return Reading(value=value, source=Source.ASSUMED)
