"""Which notices the Split page shows in a state: problems of the plan, of the engine, of left-over processes."""

from dataclasses import dataclass, replace
from datetime import datetime

from app.core.session import EngineStage
from app.orphans.verdicts import Orphan
from app.planning.advice import advice, pin_cap
from app.ui import notices
from app.ui.crash_fix import CrashFix
from app.ui.engine_notices import of_engine
from app.ui.notices import Action, Notice
from app.ui.split_inputs import SplitInputs
from app.ui.wording import layers, tokens
from engine.contract.errors import FixOption, Problem
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
    crash_fix: CrashFix | None = None


LARGEST, READ_AGAIN, READ_MACHINE, REMOVE, START_ANYWAY, OPEN_LOG, LIMIT_PINS, LIFT_LIMIT, END, END_ASKED, KEEP = (
    "largest",
    "read_again",
    "read_machine",
    "remove",
    "start_anyway",
    "open_log",
    "limit_pins",
    "lift_limit",
    "end",
    "end_asked",
    "keep",
)
MEASURE, FREE_CHOICES = "measure", "free_choices"
_FIX = "fix_"  # and the kind of change
_MOST_FIX_BUTTONS = 2
_ELSEWHERE = frozenset({"free_ram", "free_vram", "free_commit", "page_file", "close_programs", "two_changes"})


def compose(inputs: NoticeInputs) -> tuple[Notice, ...]:
    """All notices; the page shows the two that matter most."""
    split = inputs.split
    found = [*_of_orphans(inputs), *inputs.reports]
    if split.session.stage is EngineStage.FAILED:
        found.append(_of_failure(split, inputs.crash_fix))
    found += of_engine(split.session)
    if split.session.residency is not None:
        found += _of_shortfall(split.session.residency, split.wishes.pin_cap_bytes)
    if split.problem is not None and split.wishing:
        found.append(_of_model(inputs, split.problem) if split.shape is None else _of_plan(inputs, split.problem))
    if split.blocked is not None and split.wishing:
        found.append(Notice("info", split.blocked, about="blocked"))
    found.append(_of_limit(split))
    found.append(_of_choices(split))
    found.append(_of_assumed_quota(split))
    return tuple(notice for notice in found if notice is not None)


def _of_failure(split: SplitInputs, fix: CrashFix | None) -> Notice | None:
    """Why the engine stopped by itself, and the smallest change that works."""
    problem = split.session.problem
    if problem is None:
        return None
    if fix is not None:
        problem = problem.model_copy(update={"fix": fix.done or f"{fix.saw} {problem.fix}".strip()})
    log = (Action("Open log", OPEN_LOG),) if log_file(split) is not None else ()
    return notices.of_problem(problem, *(() if fix is None else (fix.action,)), *log)


def fixing_port(split: SplitInputs) -> int | None:
    """The port that is offered where the wished one is taken."""
    fixes = () if split.session.problem is None else split.session.problem.fixes
    ports = (fix.numbers.get("port") for fix in fixes if fix.change == "port")
    return next((port for port in ports if isinstance(port, int)), None)


def _of_plan(inputs: NoticeInputs, problem: Problem) -> Notice:
    """Changes that the page can make are buttons, the first one first; all of them are told."""
    more = [f"Or: {fix.sentence[0].lower()}{fix.sentence[1:]}" for fix in problem.fixes[1:]]
    actions = [action for fix in problem.fixes if (action := _fixing(fix)) is not None]
    if not any(fix.change == "context_tokens" for fix in problem.fixes) and inputs.largest_context is not None:
        actions.append(Action(f"Use {tokens(inputs.largest_context)}", LARGEST))
    actions[1:] = sorted(
        actions[1:], key=lambda action: action.kind != "danger"
    )  # to end a process comes before a wish
    outside = [fix.change in _ELSEWHERE for fix in problem.fixes]
    if any(outside) and not inputs.split.replayed:
        actions.insert(0 if outside[0] else len(actions), Action("Check again", READ_MACHINE))
    actions = [replace(one, kind=one.kind or ("" if place else "primary")) for place, one in enumerate(actions)]
    told = problem.model_copy(update={"fix": " ".join([problem.fix, *more])})
    return notices.of_problem(told, *actions[:_MOST_FIX_BUTTONS], dismissable=False)


def _fixing(fix: FixOption) -> Action | None:
    """The button of a change that is made on the page; None: it is made elsewhere."""
    number = next(iter(fix.numbers.values()), None)
    if fix.change == "allow_pageable":
        return Action("Allow pageable layers", f"{_FIX}{fix.change}")
    if fix.change == "kv_dtype":
        return Action(f"Keep the KV cache in {fix.numbers['kv_dtype']}", f"{_FIX}{fix.change}")
    if not isinstance(number, int):
        return None
    match fix.change:
        case "context_tokens":
            words = f"Use {tokens(number)}"
        case "vram_layers":
            words = f"Keep {layers(number)} in VRAM"
        case "pinned_layers":
            words = f"Pin {layers(number)}"
        case "vram_reserve_bytes" | "ram_reserve_bytes":
            words = f"Reserve {gib(number)}"
        case "end_process":
            ends = f"process {number}" if len(fix.numbers) == 1 else f"{len(fix.numbers)} processes"
            return Action(f"End {ends}", f"{_FIX}{fix.change}", "danger")
        case _:
            return None
    return Action(words, f"{_FIX}{fix.change}")


def fix_of(split: SplitInputs, action: str) -> FixOption | None:
    """The change that a button stands for; None where it is another button."""
    fixes = () if split.problem is None else split.problem.fixes
    return next((fix for fix in fixes if action == f"{_FIX}{fix.change}"), None)


def _of_model(inputs: NoticeInputs, problem: Problem) -> Notice:
    """The folder of the chosen model cannot be read."""
    away = (Action("Remove from the list", REMOVE),) if inputs.removable else ()
    return notices.of_problem(problem, Action("Read again", READ_AGAIN, "primary"), *away, dismissable=False)


def log_file(split: SplitInputs) -> str | None:
    """The log of the engine that failed."""
    return split.session.log_file


def granted_pin_bytes(split: SplitInputs) -> int | None:
    """What could be pinned this time, if that was less than asked for."""
    residency = split.session.residency
    return None if residency is None else pin_cap(residency)


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
    running = split.session.running
    when = "It counts from the next change or start." if running else "More was refused in an earlier run."
    title = f"Splitpin pins at most {gib(limit)}, as you chose"
    return Notice("info", title, when, (Action("Remove this limit", LIFT_LIMIT),), about="pin limit")


def _of_choices(split: SplitInputs) -> Notice | None:
    """What buttons of notices have set and no control of the page shows; the way back."""
    wishes = split.wishes
    kept = [
        f"{layers(wishes.vram_layers)} in VRAM" if wishes.vram_layers is not None else "",
        "pageable layers allowed" if wishes.allow_pageable else "",
        f"KV cache in {wishes.kv_dtype}" if wishes.kv_dtype is not None else "",
        f"{gib(wishes.vram_reserve_bytes)} of VRAM reserved" if wishes.vram_reserve_bytes is not None else "",
        f"{gib(wishes.ram_reserve_bytes)} of RAM reserved" if wishes.ram_reserve_bytes is not None else "",
    ]
    if split.session.running or not any(kept):
        return None
    title = f"This split keeps to your choices: {', '.join(words for words in kept if words)}"
    return Notice("info", title, "", (Action("Let Splitpin choose", FREE_CHOICES),), about="choices")


def _of_assumed_quota(split: SplitInputs) -> Notice | None:
    """Until somebody has tried it. A banner that was answered stays away."""
    quota = split.quota
    if quota is None or quota.tried or not split.on_gpu or split.session.running or split.measuring is not None:
        return None
    rule = f" ({quota.rule})" if quota.rule else ""
    named = ""
    if quota.ceiling_bytes is not None and quota.ceiling_bytes > quota.bytes:
        named = f"The system names a limit of {gib(quota.ceiling_bytes)}, but drivers often refuse earlier. "
    until = (
        " until you measure. Measuring takes up to a minute and frees everything again."
        if (split.pins_measurable)
        else ". Layers that the driver refuses to pin are locked instead, and the engine reports which."
    )
    return Notice(
        "info",
        "The pinned-memory quota of this PC is not measured yet",
        f"{named}Splitpin plans with {gib(quota.bytes)}{rule}{until}",
        (Action("Measure now", MEASURE, "primary"),) if split.pins_measurable else (),
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
