"""What a banner says: pure functions from problems, left-over processes and shortfalls to text and buttons.

Title: what happened and to what. Text: the cause with its numbers. The first button: the smallest change that works.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.orphans.verdicts import Orphan
from app.planning.advice import Advice
from engine.contract.errors import Problem
from engine.contract.residency import ResidencyReport
from engine.contract.units import gib

Severity = Literal["error", "warn", "info", "ok"]
DISMISS = "dismiss"
MOST_BANNERS = 2
_NUMBER = re.compile(r"\d[\d.,]*")
_ORDER: dict[Severity, int] = {"error": 0, "warn": 1, "info": 2, "ok": 3}


@dataclass(frozen=True, slots=True)
class Action:
    """A button: its text, what it asks for, its look."""

    label: str
    id: str
    kind: Literal["", "primary", "danger", "ghost"] = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """One banner. `about` tells notices of one kind apart, such as the pids of an orphan."""

    severity: Severity
    title: str
    text: str = ""
    actions: tuple[Action, ...] = ()
    details: str = ""
    dismissable: bool = True
    about: str = ""

    @property
    def matter(self) -> tuple[Severity, str, str]:
        """What it says apart from its numbers: two notices of one matter are one piece of news."""
        return self.severity, self.about, _NUMBER.sub("#", self.title)


def shown(notices: tuple[Notice, ...]) -> tuple[Notice, ...]:
    """The banners to show: errors above warnings above hints, at most two."""
    return tuple(sorted(notices, key=lambda notice: _ORDER[notice.severity])[:MOST_BANNERS])


def of_problem(
    problem: Problem, *actions: Action, severity: Severity = "error", title: str = "", dismissable: bool = True
) -> Notice:
    """A problem as its own words: sentence, fix, and the numbers under Details. What lasts until it is fixed
    cannot be dismissed."""
    return Notice(
        severity,
        title or problem.sentence.removesuffix("."),
        f"{problem.sentence} {problem.fix}" if title else problem.fix,
        actions,
        _details(problem),
        dismissable,
        problem.kind,
    )


def _details(problem: Problem) -> str:
    lines = [f"kind: {problem.kind}"]
    if problem.short_bytes is not None:
        lines.append(f"short by: {problem.short_bytes:,} bytes")
    lines += [
        f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}" for name, value in _numbers(problem)
    ]
    return "\n".join(lines)


def _numbers(problem: Problem) -> list[tuple[str, int | float | str]]:
    return [(name, value) for name, value in problem.numbers.items() if value is not None]


def of_orphan(orphan: Orphan, now: datetime, gain: str = "", *, ending: bool = False) -> Notice:
    """A left-over process with its bytes. `gain` says what the plan would win if it were gone; `ending`: it was told
    to end, and its memory is awaited."""
    started = datetime.fromtimestamp(orphan.started_s)
    clock = f"{started:%H:%M}" if started.date() == now.date() else f"{started:%Y-%m-%d %H:%M}"
    held = _held(orphan)
    ours = orphan.confidence == "ours"
    children = f" and {len(orphan.pids) - 1} of its children" if len(orphan.pids) > 1 else ""
    text = f"{orphan.name}, PID {orphan.pids[0]}{children}. Started {clock}. {orphan.reason}"
    if held:
        text += f" It holds {held}."
    ends = Action("End process" if len(orphan.pids) == 1 else f"End {len(orphan.pids)} processes", "end", "danger")
    if ending:
        text, gain = f"{orphan.name}, PID {orphan.pids[0]}, is being ended; Splitpin waits for its memory.", ""
    return Notice(
        "warn",
        "An engine process from an earlier run still holds memory" if ours else "A process may be left over",
        f"{text} {gain}".strip(),
        () if ending else (ends,),
        f"PIDs: {', '.join(map(str, orphan.pids))}\ncommand line: {orphan.command_line or 'cannot be read'}",
        dismissable=True,
        about=",".join(map(str, orphan.pids)),
    )


def _held(orphan: Orphan) -> str:
    pools = ((orphan.gpu_bytes, "VRAM"), (orphan.rss_bytes, "RAM"))
    held = " and ".join(f"{gib(size)} of {pool}" for size, pool in pools if size)
    if held and orphan.gpu_shared_bytes:  # what Windows counts as shared is not only what was pinned
        held += f"; about {gib(orphan.gpu_shared_bytes)} of RAM are pinned"
    return held


def of_advice(advice: Advice, report: ResidencyReport, *actions: Action) -> Notice:
    """Layers that did not get the tier they were planned for, one by one under Details."""
    fallen = [layer for layer in report.fallen if layer.layer in advice.layers]
    return Notice(
        "warn",
        advice.title,
        advice.body if actions or advice.kind == "pin" else f"{advice.body} {advice.fix}.",
        actions,
        "\n".join(
            f"layer {layer.layer}: asked {layer.asked.value}, settled {layer.settled.value}"
            + (f": {layer.cause}" if layer.cause else "")
            for layer in fallen
        ),
        about=advice.kind,
    )
