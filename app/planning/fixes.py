"""The smallest changes that make an impossible plan possible; each is tried before it is said."""

from collections.abc import Callable, Iterator

from app.planning.fixes_closing import close_programs, free_commit, free_ram, free_vram
from app.planning.held import facts_without
from app.planning.others import all_closed, closed, ram_of_others
from app.planning.refused import Refused, possible
from app.planning.terms import layers
from engine.contract.errors import FixOption
from engine.contract.estimate import KV_PAGE_TOKENS, banks, kv_cache_bytes, unpacked_kv_bytes
from engine.contract.facts import Reading, Source
from engine.contract.formats import WeightFormat
from engine.contract.kv_types import kept_in
from engine.contract.plan import Pool
from engine.contract.shape import ModelShape
from engine.contract.units import gib

Attempt = Callable[[Refused], FixOption | None]


def fixes(refused: Refused) -> tuple[FixOption, ...]:
    """Every kind of change that is enough on its own, in the order of how little it takes away; else two together."""
    single = tuple(fix for attempt in _ATTEMPTS[refused.short.pool] if (fix := attempt(refused)) is not None)
    if single:
        return single
    both = _two_changes(refused)
    return () if both is None else (both,)


def last_resort(pool: Pool) -> str:
    """What to say where not even two changes are enough, with all other programs closed."""
    match pool:
        case Pool.VRAM:
            return "Choose a smaller model, or a GPU with more memory."
        case Pool.PINNED | Pool.LOCKED:
            return f"Clear the layers that are forced to be {pool}."
        case _:
            return "Choose a smaller model."


def _largest(works: Callable[[int], bool], below: int) -> int | None:
    """The largest number in 0..below-1 that works, where all smaller ones work too; None if not even 0 does."""
    if below < 1 or not works(0):
        return None
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def _fewer_vram_layers(refused: Refused) -> FixOption | None:
    wish = refused.room.wishes.vram_layers
    if wish is None:
        return None
    most = _largest(lambda number: refused.works(vram_layers=number), wish)
    if most is None:
        return None
    return FixOption(change="vram_layers", sentence=f"Keep {layers(most)} in VRAM.", numbers={"vram_layers": most})


def _more_vram_layers(refused: Refused) -> FixOption | None:
    """Layers that the user keeps out of VRAM have to be in RAM."""
    room = refused.room
    wish = room.wishes.vram_layers
    if wish is None or not room.on_gpu:
        return None
    least = next((n for n in range(wish + 1, room.most_vram + 1) if refused.works(vram_layers=n)), None)
    if least is None:
        return None
    return FixOption(change="vram_layers", sentence=f"Keep {layers(least)} in VRAM.", numbers={"vram_layers": least})


def _shorter_context(refused: Refused) -> FixOption | None:
    room = refused.room
    asked = room.wishes.context_tokens
    if asked is None:
        return None
    pages = -(-room.rounded(asked) // KV_PAGE_TOKENS)
    most = _largest(lambda page: refused.works((page + 1) * KV_PAGE_TOKENS), pages - 1)
    if most is None:
        return None
    tokens = (most + 1) * KV_PAGE_TOKENS
    return FixOption(
        change="context_tokens",
        sentence=f"Choose a context of at most {tokens:,} tokens.",
        numbers={"context_tokens": tokens},
    )


def _fp8_kv(refused: Refused) -> FixOption | None:
    """Keys and values in half the room; it costs time at long contexts and a little exactness."""
    room, asked = refused.room, refused.room.wishes.context_tokens
    if asked is None or room.shape.kv_dtype == "fp8" or not refused.works(kv_dtype="fp8"):
        return None
    tokens, small = room.rounded(asked), kept_in(room.shape, "fp8")
    saved = kv_cache_bytes(room.shape, tokens) - kv_cache_bytes(small, tokens) - unpacked_kv_bytes(small, tokens)
    return FixOption(
        change="kv_dtype",
        sentence=f"Keep the KV cache in fp8: saves {gib(saved)}.",
        numbers={"kv_dtype": "fp8", "saved_bytes": saved},
    )


def _no_pins(refused: Refused) -> FixOption | None:
    if refused.room.wishes.pinned_layers == 0 or not refused.works(pinned_layers=0):
        return None
    return FixOption(
        change="pinned_layers",
        sentence="Pin 0 layers: they are computed on the CPU then and need no slots on the GPU.",
        numbers={"pinned_layers": 0},
    )


def _fewer_pins(refused: Refused) -> FixOption | None:
    most, wish = refused.room.quota_layers, refused.room.wishes.pinned_layers
    if most is None or wish is None or most >= wish or not refused.works(pinned_layers=most):
        return None
    return FixOption(change="pinned_layers", sentence=f"Pin {layers(most)}.", numbers={"pinned_layers": most})


def _less_reserve(refused: Refused) -> FixOption | None:
    """A reserve that the user set may be what is in the way."""
    room, pool = refused.room, refused.short.pool
    field = "vram_reserve_bytes" if pool is Pool.VRAM else "ram_reserve_bytes"
    reserve: int | None = getattr(room.wishes, field)
    left = (reserve or 0) - refused.short.missing_bytes
    if reserve is None or left < 0 or not refused.works(**{field: left}):
        return None
    name = "VRAM" if pool is Pool.VRAM else "RAM"
    return FixOption(
        change=field,
        sentence=f"Reserve {gib(left)} of {name} for other programs instead of {gib(reserve)}.",
        numbers={field: left},
    )


def _end_process(refused: Refused) -> FixOption | None:
    """The left-over process that is enough on its own, the smallest of several; all of them if none is."""
    held = sorted(refused.held, key=lambda one: one.ram_bytes + one.vram_bytes)
    for one in held:
        if refused.works_on(facts_without(refused.room.facts, [one])):
            return FixOption(change="end_process", sentence=f"End {one.words}.", numbers={"end_pid": one.pid})
    if len(held) < 2 or not refused.works_on(facts_without(refused.room.facts, held)):
        return None
    return FixOption(
        change="end_process",
        sentence=f"End the {len(held)} left-over processes.",
        numbers={f"end_pid_{number}": one.pid for number, one in enumerate(held, start=1)},
    )


def _smaller_format(refused: Refused) -> FixOption | None:
    """The same model with its experts in fewer bits: 16 where they have more, else 4."""
    shape = refused.room.shape
    now = sum(banks(shape))
    for weight_format, smaller in _smaller_formats(shape):
        small = sum(banks(smaller))
        if small >= now or not possible(smaller, refused.room.facts, refused.room.wishes):
            continue
        name = weight_format.value.upper()
        return FixOption(
            change="expert_format",
            sentence="Choose this model in a smaller format: "
            f"in {name} its experts take {gib(small)} instead of {gib(now)}.",
            numbers={
                "experts_bytes": now,
                f"{weight_format.value}_experts_bytes": small,
                "expert_format": weight_format.value,
            },
        )
    return None


def _smaller_formats(shape: ModelShape) -> Iterator[tuple[WeightFormat, ModelShape]]:
    for weight_format in (WeightFormat.BF16, WeightFormat.NVFP4):
        if weight_format is not shape.expert_format:
            yield weight_format, shape.model_copy(update={"expert_format": weight_format, "storages": ()})


def _pageable(refused: Refused) -> FixOption | None:
    if refused.room.wishes.allow_pageable or not refused.works(allow_pageable=True):
        return None
    return FixOption(
        change="allow_pageable",
        sentence="Allow pageable layers; each token may then have to wait for the disk.",
        numbers={"allow_pageable": "yes"},
    )


def _more_commit(refused: Refused) -> FixOption | None:
    missing, limit = refused.short.missing_bytes, refused.room.facts.commit_limit.value
    if limit is None:
        return None
    grown = limit + missing + missing // 8  # the reserve grows with the limit, by at most a 16th
    if not refused.works_on(refused.room.facts.model_copy(update={"commit_limit": _reading(grown)})):
        return None
    return FixOption(
        change="page_file",
        sentence=f"Let Windows manage the page file, or make it {gib(grown - limit)} larger.",
        numbers={"page_file_growth_bytes": grown - limit},
    )


def _two_changes(refused: Refused) -> FixOption | None:
    """A smaller wish, and how much other programs hold too much for it; else all of their memory."""
    facts = refused.room.facts
    for freed in (closed(facts, ram_bytes=ram_of_others(facts)), all_closed(facts)):
        for attempt in (_shorter_context, _fewer_vram_layers, _no_pins, _less_reserve):
            first = attempt(refused.on(freed))
            second = None if first is None else _closing(refused.under(first))
            if first is not None and second is not None:
                return FixOption(
                    change="two_changes",
                    sentence=f"{first.sentence.removesuffix('.')}, and {second.sentence[0].lower()}"
                    f"{second.sentence[1:]}",
                    numbers={**first.numbers, **second.numbers},
                )
    return close_programs(refused) if refused.works_on(all_closed(facts)) else None


def _closing(refused: Refused) -> FixOption | None:
    return next((fix for free in (free_ram, free_commit, free_vram) if (fix := free(refused)) is not None), None)


_ATTEMPTS: dict[Pool, tuple[Attempt, ...]] = {
    Pool.VRAM: (
        _fewer_vram_layers, _shorter_context, _fp8_kv, _less_reserve, _end_process, free_vram, _no_pins,
        _smaller_format,
    ),
    Pool.PINNED: (_fewer_pins, _end_process),
    Pool.LOCKED: (),
    Pool.RAM: (
        _shorter_context, _fp8_kv, _more_vram_layers, _less_reserve, _end_process, free_ram, _smaller_format, _pageable,
    ),
    Pool.COMMIT: (
        _shorter_context, _fp8_kv, _more_vram_layers, _end_process, _more_commit, free_commit, _smaller_format,
    ),
}  # fmt: skip


def _reading(value: int) -> Reading:
    return Reading(value=value, source=Source.ASSUMED)
