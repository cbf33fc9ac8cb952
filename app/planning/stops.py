"""The stops of the slider: one whole layer a step, none beyond a limit, and the places where limits are met."""

import math
from dataclasses import dataclass
from typing import Literal

from app.planning.counts import Counts, counts
from app.planning.room import Room
from app.planning.shortage import Shortage
from app.planning.wishes import Wishes
from engine.contract.estimate import KV_PAGE_TOKENS
from engine.contract.facts import HardwareFacts
from engine.contract.plan import Pool
from engine.contract.shape import ModelShape

_CPU_STOPS = 12


@dataclass(frozen=True, slots=True)
class Stop:
    """One position of the slider, and the split that belongs to it."""

    context_tokens: int
    vram_layers: int
    pinned_layers: int
    locked_layers: int
    pageable_layers: int
    expert_slots: int


@dataclass(frozen=True, slots=True)
class Marker:
    """A limit on the slider. `stop` is the first stop beyond it; it may lie one behind the last."""

    stop: int
    layers: int  # that fit below the limit
    limit: Literal["quota", "ram", "commit"]
    assumed: bool = False  # the limit is a rule or a reading, not measured


@dataclass(frozen=True, slots=True)
class SliderStops:
    """All stops, from most layers in VRAM to the longest context. Empty: this model does not fit at all."""

    stops: tuple[Stop, ...]
    pin_full: Marker | None = None
    ram_full: Marker | None = None


def slider_stops(shape: ModelShape, facts: HardwareFacts, wishes: Wishes) -> SliderStops:
    """Every context at which one more layer leaves VRAM, as long as RAM and commit hold the layers outside.

    The slider replaces the wishes for context and layers in VRAM; the other wishes hold. Stops below 4,096 tokens are
    left out unless the model's maximum is shorter. Without a GPU there is no layer to trade: about a dozen contexts.

    Raises:
        UsageError: wishes that contradict each other or the model.
    """
    room = Room(shape, facts, wishes.model_copy(update={"context_tokens": None, "vram_layers": None}))
    stops: list[Stop] = []
    short: Shortage | None = None
    for tokens in _gpu_contexts(room) if room.on_gpu else _cpu_contexts(room):
        try:
            stops.append(_stop(counts(room, tokens)))
        except Shortage as shortage:
            short = shortage
            break
    return SliderStops(tuple(stops), _pin_marker(room, stops), _ram_marker(room, stops, short))


def _stop(found: Counts) -> Stop:
    return Stop(
        context_tokens=found.context_tokens,
        vram_layers=found.vram_layers,
        pinned_layers=found.pinned_layers,
        locked_layers=found.locked_layers,
        pageable_layers=found.pageable_layers,
        expert_slots=found.expert_slots,
    )


def _gpu_contexts(room: Room) -> list[int]:
    contexts: list[int] = []
    for vram in range(room.most_vram, room.least_vram - 1, -1):
        tokens = room.tokens_for(vram)
        if tokens < room.least_tokens or (contexts and tokens == contexts[-1]):
            continue
        contexts.append(tokens)
        if tokens == room.shape.max_context_tokens:
            break
    return contexts


def _cpu_contexts(room: Room) -> list[int]:
    """Evenly spaced in doublings, whole pages, from the shortest that is offered to what RAM allows."""
    least, most = room.least_tokens, room.longest_tokens()
    if most <= least:
        return [most] if most == room.shape.max_context_tokens or most == least else []
    steps = min(_CPU_STOPS, 1 + (most - least) // KV_PAGE_TOKENS)
    ratio = most / least
    between = {room.rounded(math.floor(least * ratio ** (step / (steps - 1)))) for step in range(1, steps - 1)}
    return sorted({least, *(tokens for tokens in between if tokens < most), most})


def _pin_marker(room: Room, stops: list[Stop]) -> Marker | None:
    most = room.quota_layers
    if not room.on_gpu or most is None:
        return None
    first = next((index for index, stop in enumerate(stops) if room.layers - stop.vram_layers > most), None)
    return None if first is None else Marker(first, most, "quota", assumed=not room.budgets.quota.proven)


def _ram_marker(room: Room, stops: list[Stop], short: Shortage | None) -> Marker | None:
    if short is not None:
        limit: Literal["ram", "commit"] = "commit" if short.pool is Pool.COMMIT else "ram"
        return Marker(len(stops), room.ram_layers or 0, limit)
    first = next((index for index, stop in enumerate(stops) if stop.pageable_layers), None)
    return None if first is None else Marker(first, room.ram_layers or 0, "ram")
