"""Machines in numbers, for rules that need only a few of them."""

from typing import Any, Literal

from engine.contract.facts import GpuFacts, HardwareFacts, Reading, Source
from engine.contract.units import GIB

Os = Literal["windows", "linux", "wsl2"]


def gib_bytes(amount: float) -> int:
    return round(amount * GIB)


def gpu(vram: int, *, used: int = 0, **more: Any) -> GpuFacts:
    """A CUDA card whose driver takes nothing for itself unless said otherwise."""
    facts = {"name": "card", "vendor": "nvidia", "cuda": True, "vram_total": vram, "vram_used": used}
    return GpuFacts.model_validate({**facts, "context_bytes": 0, **more})


def machine(ram: int, card: GpuFacts | None = None, *, os: Os = "windows", **more: Any) -> HardwareFacts:
    """A machine with so much RAM, all of it free unless said otherwise."""
    facts = {"os": os, "ram_total": ram, "ram_available": ram, "gpus": () if card is None else (card,)}
    return HardwareFacts.model_validate({**facts, **more})


def measured(amount: int) -> Reading:
    return Reading(value=amount, source=Source.MEASURED)
