"""Figures that hold still: what a process or program holds is told anew only once it has changed by much.

The process table is read every 10 s, and every running program takes and gives back a little all the time. A text that
changes each time cannot be read, is spoken again by a screen reader, and hides the change that matters.
"""

from app.orphans.verdicts import Orphan, ProgramUse, Verdicts
from engine.contract.units import GIB

SLACK_SHARE = 0.05  # of what was told before
SLACK_BYTES = GIB // 4  # and what is less than that is not worth a word
_AMOUNTS = ("rss_bytes", "gpu_bytes", "private_bytes", "locked_bytes", "gpu_shared_bytes")


def steady(told: Verdicts, found: Verdicts) -> Verdicts:
    """`found`, with the amounts of `told` where they are still about right."""
    orphans = {(one.identities, one.confidence): one for one in told.orphans}
    programs = {one.name: one for one in told.programs}
    held = [_program(programs.get(one.name), one) for one in found.programs]
    return found.model_copy(
        update={
            "orphans": tuple(_orphan(orphans.get((one.identities, one.confidence)), one) for one in found.orphans),
            "programs": tuple(sorted(held, key=lambda one: -(one.rss_bytes + one.gpu_bytes))),
        }
    )


def _orphan(told: Orphan | None, found: Orphan) -> Orphan:
    if told is None:
        return found
    return found.model_copy(update={name: _amount(getattr(told, name), getattr(found, name)) for name in _AMOUNTS})


def _program(told: ProgramUse | None, found: ProgramUse) -> ProgramUse:
    if told is None:
        return found
    rss, gpu = _amount(told.rss_bytes, found.rss_bytes), _amount(told.gpu_bytes, found.gpu_bytes)
    return found.model_copy(update={"rss_bytes": rss, "gpu_bytes": gpu})


def _amount(told: int | None, found: int | None) -> int | None:
    if told is None or found is None or (told == 0) is not (found == 0):
        return found
    return told if abs(found - told) <= max(SLACK_BYTES, told * SLACK_SHARE) else found
