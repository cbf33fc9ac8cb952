"""Fixes that need other programs closed: how much is enough, how much they hold, and which hold most."""

from app.planning.others import closed, largest, least, ram_of_others, vram_of_others
from app.planning.refused import Refused
from engine.contract.errors import FixOption
from engine.contract.units import gib


def free_ram(refused: Refused) -> FixOption | None:
    """Only where closing programs can be enough: the machine has the RAM, somebody else uses it."""
    facts = refused.room.facts
    used = ram_of_others(facts)
    needed = least(lambda freed: refused.works_on(closed(facts, ram_bytes=freed)), used)
    if needed is None or facts.ram_available.value is None:
        return None
    free = facts.ram_available.value + needed
    return FixOption(
        change="free_ram",
        sentence=f"Close other programs until {gib(free)} of RAM are free. {_ram_words(refused, used)}",
        numbers={"ram_available_bytes": free, "ram_of_others_bytes": used},
    )


def free_commit(refused: Refused) -> FixOption | None:
    """The same for memory that the system has promised to other programs, whether they use it or not."""
    facts = refused.room.facts
    used = facts.commit_used.value or 0
    needed = least(lambda freed: refused.works_on(closed(facts, ram_bytes=freed)), used)
    if needed is None:
        return None
    return FixOption(
        change="free_commit",
        sentence=f"Close programs that were promised {gib(needed)}. "
        f"All programs together were promised {gib(used)}{largest(refused.programs, lambda one: one.ram_bytes)}.",
        numbers={"commit_used_bytes": used - needed},
    )


def free_vram(refused: Refused) -> FixOption | None:
    """The same for a GPU that other programs use."""
    facts = refused.room.facts
    if refused.room.budgets.device != "cuda":
        return None
    used = vram_of_others(facts)
    needed = least(lambda freed: refused.works_on(closed(facts, vram_bytes=freed)), used)
    if needed is None:
        return None
    return FixOption(
        change="free_vram",
        sentence=f"Close programs that use {gib(needed)} of the GPU's memory. {_vram_words(refused, used)}",
        numbers={"vram_used_bytes": used - needed, "vram_of_others_bytes": used},
    )


def close_programs(refused: Refused) -> FixOption:
    """Where RAM alone and GPU memory alone are not enough."""
    ram, vram = ram_of_others(refused.room.facts), vram_of_others(refused.room.facts)
    return FixOption(
        change="close_programs",
        sentence=f"Close all other programs. They hold {gib(ram)} of RAM"
        f"{largest(refused.programs, lambda one: one.ram_bytes)}, and {gib(vram)} of GPU memory"
        f"{largest(refused.programs, lambda one: one.vram_bytes)}.",
        numbers={"ram_of_others_bytes": ram, "vram_of_others_bytes": vram},
    )


def _ram_words(refused: Refused, used: int) -> str:
    return f"They hold {gib(used)} of it now{largest(refused.programs, lambda one: one.ram_bytes)}."


def _vram_words(refused: Refused, used: int) -> str:
    return f"They hold {gib(used)} of it now{largest(refused.programs, lambda one: one.vram_bytes)}."
