"""The one button that mends what ended the engine. Pure; what it would start is planned before it is offered."""

from dataclasses import dataclass, field
from typing import Any

from app.core.session import EngineStage
from app.planning.after_crash import cause_of, restart_fix
from app.ui.notices import Action
from app.ui.split_inputs import SplitInputs
from app.ui.split_plan import Question
from app.ui.wording import layers
from engine.contract.estimate import banks
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.units import gib

START, START_WITH, OPEN_PAGE_FILE, COPY_DETAILS, USE_PORT = (
    "start",
    "start_with",
    "open_page_file",
    "copy_details",
    "use_port",
)
_PLANNED_ANEW = "Splitpin has read the folder again and planned anew."
_NOTHING_TO_CHANGE = frozenset({"dll_missing", "illegal_instruction"})  # by a start: somebody has to be asked


@dataclass(frozen=True, slots=True)
class CrashFix:
    """`wishes` are those to start with; `saw` is what is known beyond the engine's words, `done` what has been done
    since and stands in the place of its fix."""

    action: Action
    wishes: dict[str, Any] = field(default_factory=dict)
    saw: str = ""
    done: str = ""


def crash_fix(inputs: SplitInputs, question: Question | None, *, can_open_page_file: bool) -> CrashFix | None:
    """What to offer after an engine stopped by an error; None where nothing can be started."""
    problem, sent = inputs.session.problem, inputs.session.plan
    if inputs.session.stage is not EngineStage.FAILED or problem is None:
        return None
    ports = [fix for fix in problem.fixes if fix.change == "port"]
    if ports and inputs.plan is not None:
        return CrashFix(Action(ports[0].sentence, USE_PORT, "primary"))
    cause = cause_of(problem)
    if cause in _NOTHING_TO_CHANGE:
        return CrashFix(Action("Copy details", COPY_DETAILS, "primary"))
    if cause == "commit_limit" and can_open_page_file:
        return CrashFix(Action("Open page-file settings", OPEN_PAGE_FILE, "primary"))
    if cause == "model_changed" and inputs.plan is not None:
        return CrashFix(Action("Start with the new plan", START, "primary"), done=_PLANNED_ANEW)
    saw = _pinned_words(inputs) if cause == "pinned" else ""
    if sent is not None and question is not None and inputs.blocked is None:

        def plans(wishes: dict[str, Any]) -> MemoryPlan | None:
            return question.with_wishes(**wishes).possible()

        fix = restart_fix(problem, sent, _pinned_before(inputs), question.facts, plans)
        if fix is not None:
            return CrashFix(Action(fix.sentence, START_WITH, "primary"), dict(fix.numbers), saw)
    return None if inputs.plan is None else CrashFix(Action("Start again", START, "primary"), saw=saw)


def _pinned_before(inputs: SplitInputs) -> int:
    """Layers that the engine had pinned when it ended."""
    return sum(one.settled is Tier.PINNED for one in inputs.session.settled.values())


def _pinned_words(inputs: SplitInputs) -> str:
    count, sent = _pinned_before(inputs), inputs.session.plan
    if not count or sent is None:
        return ""
    size = sum(
        size
        for layer, size in zip(sent.model.moe_layers, banks(sent.model), strict=True)
        if (one := inputs.session.settled.get(layer)) is not None and one.settled is Tier.PINNED
    )
    was = "was" if count == 1 else "were"
    return f"{layers(count)} ({gib(size)}) {was} pinned before that; {layers(sent.layers_in(Tier.PINNED))} were to be."
