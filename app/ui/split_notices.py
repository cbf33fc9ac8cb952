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
    end needs a second click; `reports` are results that stay until they are dismissed; `removable`: the user put the
    model into the list."""

    split: SplitInputs
    now: datetime
    largest_context: int | None = None
    orphans: tuple[Orphan, ...] = ()
    gain: str = ""
    refused: bool = False
    asked: Orphan | None = None
    ending: tuple[int, ...] = ()
    reports: tuple[Notice, ...] = ()
    removable: bool = False


LARGEST, READ_AGAIN, REMOVE, START, START_ANYWAY, OPEN_LOG, LIMIT_PINS, LIFT_LIMIT, END, END_ASKED, KEEP = (
    "largest",
    "read_again",
    "remove",
    "start",
    "start_anyway",
    "open_log",
    "limit_pins",
    "lift_limit",
    "end",
    "end_asked",
    "keep",
)
USE_PORT = "use_port"


def compose(inputs: NoticeInputs) -> tuple[Notice, ...]:
    """All notices; the page shows the two that matter most."""
    split = inputs.split
    found = [*_of_orphans(inputs), *inputs.reports]
    if split.session.stage is EngineStage.FAILED:
        log = (Action("Open log", OPEN_LOG),) if log_file(split) is not None else ()
        found.append(notices.of_failure(split.session, *_after_failure(split), *log))
    if split.session.residency is not None:
        found += _of_shortfall(split.session.residency, split.wishes.pin_cap_bytes)
    if split.problem is not None and not split.session.running:
        found.append(_of_model(inputs, split.problem) if split.shape is None else _of_plan(inputs, split.problem))
    if split.blocked is not None and not split.session.running:
        found.append(Notice("info", split.blocked, about="blocked"))
    found.append(_of_limit(split))
    found.append(_of_assumed_quota(split))
    return tuple(notice for notice in found if notice is not None)


def _after_failure(split: SplitInputs) -> tuple[Action, ...]:
    """The smallest change that works first."""
    if split.plan is None:
        return ()
    problem = split.session.problem
    ports = [fix for fix in problem.fixes if fix.change == "port"] if problem is not None else []
    if ports:
        return (Action(ports[0].sentence, USE_PORT, "primary"),)
    return (Action("Start again", START, "primary"),)


def fixing_port(split: SplitInputs) -> int | None:
    """The port that is offered where the wished one is taken."""
    fixes = () if split.session.problem is None else split.session.problem.fixes
    ports = (fix.numbers.get("port") for fix in fixes if fix.change == "port")
    return next((port for port in ports if isinstance(port, int)), None)


def _of_plan(inputs: NoticeInputs, problem: Problem) -> Notice:
    if inputs.largest_context is None:
        return notices.of_problem(problem, dismissable=False)
    action = Action(f"Use {tokens(inputs.largest_context)}", LARGEST, "primary")
    return notices.of_problem(problem, action, dismissable=False)


def _of_model(inputs: NoticeInputs, problem: Problem) -> Notice:
    """The folder of the chosen model cannot be read."""
    away = (Action("Remove from the list", REMOVE),) if inputs.removable else ()
    return notices.of_problem(problem, Action("Read again", READ_AGAIN, "primary"), *away, dismissable=False)


def log_file(split: SplitInputs) -> str | None:
    """The log of the engine that failed."""
    problem = split.session.problem
    file = None if problem is None else problem.numbers.get("log_file")
    return file if isinstance(file, str) and file else None


def granted_pin_bytes(split: SplitInputs) -> int | None:
    """What could be pinned this time, if that was less than asked for."""
    residency = split.session.residency
    found = () if residency is None else advice(residency)
    return next((one.pin_cap_bytes for one in found if one.pin_cap_bytes is not None), None)


def _of_shortfall(residency: ResidencyReport, limit_bytes: int | None) -> list[Notice]:
    made = []
    for one in advice(residency):
        if one.pin_cap_bytes is None:
            made.append(notices.of_advice(one, residency))
        elif limit_bytes is None or limit_bytes > one.pin_cap_bytes:  # else the user has answered it
            made.append(notices.of_advice(one, residency, Action(one.fix, LIMIT_PINS)))
    return made


def _of_limit(split: SplitInputs) -> Notice | None:
    """The limit that the user set, as long as it holds; the way back."""
    limit = split.wishes.pin_cap_bytes
    if limit is None or not split.on_gpu:
        return None
    when = "It counts from the next start." if split.session.running else "More was refused in an earlier run."
    title = f"Splitpin pins at most {gib(limit)}, as you chose"
    return Notice("info", title, when, (Action("Remove this limit", LIFT_LIMIT),), about="pin limit")


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
