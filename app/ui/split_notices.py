"""Which notices the Split page shows in a state: problems of the plan, of the engine, of left-over processes."""

from dataclasses import dataclass
from datetime import datetime

from app.core.session import EngineStage
from app.orphans.verdicts import Orphan
from app.planning.advice import advice
from app.ui import notices
from app.ui.notices import Action, Notice
from app.ui.split_inputs import SplitInputs
from app.ui.wording import tokens
from engine.contract.errors import Problem
from engine.contract.facts import Source
from engine.contract.residency import ResidencyReport
from engine.contract.units import gib


@dataclass(frozen=True, slots=True)
class NoticeInputs:
    """`refused` is set while a start waits for the user's word on a left-over process; `asked` is the process whose
    end needs a second click; `reports` are results that stay until they are dismissed."""

    split: SplitInputs
    now: datetime
    largest_context: int | None = None
    orphans: tuple[Orphan, ...] = ()
    gain: str = ""
    refused: bool = False
    asked: Orphan | None = None
    ending: tuple[int, ...] = ()
    reports: tuple[Notice, ...] = ()


LARGEST, START, START_ANYWAY, LEARN, END, END_ASKED, KEEP = (
    "largest",
    "start",
    "start_anyway",
    "learn",
    "end",
    "end_asked",
    "keep",
)


def compose(inputs: NoticeInputs) -> tuple[Notice, ...]:
    """All notices; the page shows the two that matter most."""
    split = inputs.split
    found = [*_of_orphans(inputs), *inputs.reports]
    if split.session.stage is EngineStage.FAILED:
        again = (Action("Start again", START, "primary"),) if split.plan is not None else ()
        found.append(notices.of_failure(split.session, *again))
    if split.session.residency is not None:
        found += _of_shortfall(split.session.residency)
    if split.problem is not None and not split.session.running:
        found.append(_of_plan(split.problem, inputs.largest_context))
    if split.blocked is not None and not split.session.running:
        found.append(Notice("info", split.blocked, about="blocked"))
    found.append(_of_assumed_quota(split))
    return tuple(notice for notice in found if notice is not None)


def _of_plan(problem: Problem, largest: int | None) -> Notice:
    if largest is None:
        return notices.of_problem(problem, dismissable=False)
    action = Action(f"Use {tokens(largest)}", LARGEST, "primary")
    return notices.of_problem(problem, action, dismissable=False)


def granted_pin_bytes(split: SplitInputs) -> int | None:
    """What could be pinned this time, if that was less than asked for."""
    residency = split.session.residency
    found = () if residency is None else advice(residency)
    return next((one.pin_cap_bytes for one in found if one.pin_cap_bytes is not None), None)


def _of_shortfall(residency: ResidencyReport) -> list[Notice]:
    made = []
    for one in advice(residency):
        learns = one.pin_cap_bytes is not None and not residency.simulated
        actions = (Action(one.fix, LEARN),) if learns else ()
        made.append(notices.of_advice(one, residency, *actions))
    return made


def _of_assumed_quota(split: SplitInputs) -> Notice | None:
    quota = split.quota
    if quota is None or quota.source is not Source.ASSUMED or not split.on_gpu or split.session.running:
        return None
    rule = f" ({quota.rule})" if quota.rule else ""
    return Notice(
        "info",
        "The pinned-memory quota of this PC is not measured yet",
        f"Splitpin plans with {gib(quota.bytes)}{rule}. Layers that the driver refuses to pin are locked instead, and "
        "the engine reports which.",
        about="quota",
    )


def _of_orphans(inputs: NoticeInputs) -> list[Notice | None]:
    if not inputs.orphans or inputs.split.session.running:
        return []
    if inputs.asked is not None:
        return [_second_question(inputs.asked)]
    first = inputs.orphans[0]
    made = notices.of_orphan(first, inputs.now, inputs.gain, ending=first.pids[0] in inputs.ending)
    if not inputs.refused:
        return [made]
    actions = (*made.actions, Action("Start anyway", START_ANYWAY, ""))
    return [
        Notice(
            "error",
            "The engine was not started: an engine process from an earlier run still holds memory",
            made.text,
            actions,
            made.details,
            about=made.about,
        )
    ]


def _second_question(orphan: Orphan) -> Notice:
    return Notice(
        "warn",
        f"End {orphan.name}, PID {orphan.pids[0]}? Splitpin is not sure that it is its own",
        f"{orphan.reason} Command line: {orphan.command_line or 'cannot be read'}",
        (Action("End process", END_ASKED, "danger"), Action("Keep", KEEP, "ghost")),
        dismissable=False,
        about=",".join(map(str, orphan.pids)),
    )
