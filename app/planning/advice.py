"""What to say and do when layers did not get the tier they were planned for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.contract.plan import Tier
from engine.contract.residency import LayerResidency, ResidencyReport
from engine.contract.units import gib


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence, the cause with its numbers, and the smallest change that helps next time."""

    kind: Literal["pin", "lock"]
    title: str
    body: str
    fix: str
    layers: tuple[int, ...]
    pin_cap_bytes: int | None = None  # what could be pinned this time: a limit to start from next time


def advice(report: ResidencyReport) -> tuple[Advice, ...]:
    """One advice for layers that were not pinned, one for layers that were not locked; none where all went as planned.

    Layers that were to be pinned and ended pageable appear under both: two refusals made them so.
    """
    unpinned = [layer for layer in report.fallen if layer.asked is Tier.PINNED]
    unlocked = [layer for layer in report.fallen if layer.settled is Tier.PAGEABLE]
    found: list[Advice] = []
    if unpinned:
        found.append(_pin(report, unpinned))
    if unlocked:
        found.append(_lock(unlocked))
    return tuple(found)


def pin_cap(report: ResidencyReport) -> int | None:
    """What could be pinned this time, in bytes, if that was less than asked for."""
    return next((one.pin_cap_bytes for one in advice(report) if one.pin_cap_bytes is not None), None)


def _pin(report: ResidencyReport, layers: Sequence[LayerResidency]) -> Advice:
    pinned = report.pinned_bytes
    instead = " and ".join(
        f"{_named([layer.layer for layer in layers if layer.settled is tier])} {tier.value}"
        for tier in (Tier.LOCKED, Tier.PAGEABLE)
        if any(layer.settled is tier for layer in layers)
    )
    plural = "s" if len(layers) > 1 else ""
    return Advice(
        kind="pin",
        title=f"The engine is running, but it pinned {len(layers)} layer{plural} fewer than you asked for",
        body=f"{instead} instead and computed on the CPU. The quota is now {gib(pinned)}.{_causes(layers)}",
        fix=f"Use {gib(pinned)} from now on",
        layers=tuple(layer.layer for layer in layers),
        pin_cap_bytes=pinned,
    )


def _lock(layers: Sequence[LayerResidency]) -> Advice:
    many = len(layers) > 1
    return Advice(
        kind="lock",
        title=f"The operating system did not lock {len(layers)} layer{'s' if many else ''}",
        body=f"{_named([layer.layer for layer in layers])} pageable now and may be slow.{_causes(layers)}",
        fix="Close other programs and try again",
        layers=tuple(layer.layer for layer in layers),
    )


def _named(numbers: Sequence[int]) -> str:
    """ "Layer 3 is", "Layers 55 to 57 are", "Layers 1, 2 and 9 are"."""
    if len(numbers) == 1:
        return f"Layer {numbers[0]} is"
    ordered = sorted(numbers)
    if ordered[-1] - ordered[0] == len(ordered) - 1 and len(ordered) > 2:
        return f"Layers {ordered[0]} to {ordered[-1]} are"
    return f"Layers {', '.join(map(str, ordered[:-1]))} and {ordered[-1]} are"


def _causes(layers: Sequence[LayerResidency]) -> str:
    """The first refusal in the system's own words; later ones repeat it with other numbers."""
    cause = next((layer.cause for layer in layers if layer.cause), None)
    return f" {cause}" if cause else ""
