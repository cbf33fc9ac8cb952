"""What the Chat page says about the engine and about problems: pure functions from states to words and notices."""

from typing import Final

from app.core.session import EngineStage, SessionState
from app.link.chat_flow import TOO_LONG
from app.link.stream import NO_ANSWER
from app.ui import notices
from app.ui.notices import Action, Notice, of_problem
from app.ui.wording import counts, percent, short_name, tokens
from engine.contract.errors import Problem
from engine.contract.plan import Tier

START: Final = "start"
SEND_AGAIN: Final = "send_again"
TAKE_BACK: Final = "take_back"
LEAVE_OUT: Final = "leave_out"
END_ENGINE: Final = "end_engine"
DISMISS: Final = notices.DISMISS

KEPT: Final = "What you write is kept and sent when it is ready."

_STAGE_WORDS: Final = {
    EngineStage.STOPPED: "The engine is stopped",
    EngineStage.STARTING: "The engine is starting",
    EngineStage.LOADING: "The engine is loading",
    EngineStage.CHECKING: "The engine is being checked",
    EngineStage.STOPPING: "The engine is stopping",
    EngineStage.FAILED: "The engine stopped by an error",
}


def session_line(state: SessionState) -> str:
    """ "MiniMax-M2.5 · 24,576 tokens · 8 VRAM, 49 pinned, 5 locked", or what the engine is doing instead."""
    plan = state.plan
    if plan is None:
        return stage_words(state)
    name = short_name(state.model_name or "")
    if state.stage is EngineStage.LOADING:
        return f"{name} · engine is loading, {percent(state.share_loaded)}"
    if state.stage is not EngineStage.READY:
        return f"{name} · {stage_words(state).removeprefix('The ')}"
    if state.change is not None:
        return f"{name} · {change_words(state)}"
    if state.residency is None:
        per_tier = {tier: plan.layers_in(tier) for tier in Tier}
    else:
        per_tier = {tier: state.residency.settled_count(tier) for tier in Tier}
    return f"{name} · {tokens(plan.context_tokens)} · {counts(per_tier)}"


def change_words(state: SessionState) -> str:
    """What the engine does about the split that is asked for; the answer in progress comes first."""
    change = state.change
    if change is None:
        return ""
    what = "the engine is started again" if change.restart else "the split is changed"
    return f"{what} after this answer" if state.request is not None else f"{what} now"


def stage_words(state: SessionState) -> str:
    """ "The engine is stopped"; when ready, which model is."""
    if state.stage is EngineStage.READY:
        return f"{short_name(state.model_name or 'The engine')} is ready"
    return _STAGE_WORDS[state.stage]


def can_start(state: SessionState) -> bool:
    """Whether starting the engine is what helps now."""
    return state.stage in (EngineStage.STOPPED, EngineStage.FAILED)


def engine_notice(state: SessionState) -> Notice | None:
    """Above the composer while the engine is not ready."""
    if state.stage is EngineStage.READY:
        return None
    actions = (Action("Start engine", START, "primary"),) if can_start(state) else ()
    if state.problem is not None and state.stage is EngineStage.FAILED:
        return of_problem(state.problem, *actions, dismissable=False)
    return Notice("info", stage_words(state), KEPT, actions, dismissable=False)


def problem_notice(problem: Problem, *, unanswered: bool, leave_out_count: int, last_log_line: str = "") -> Notice:
    """Below the last message: what went wrong, and the smallest thing that helps."""
    actions: list[Action] = []
    if leave_out_count:
        messages = "the oldest message" if leave_out_count == 1 else f"the {leave_out_count} oldest messages"
        actions.append(Action(f"Leave out {messages}", LEAVE_OUT, "primary"))
    if unanswered:
        if problem.kind != TOO_LONG:
            actions.append(Action("Send again", SEND_AGAIN, "primary"))
        actions.append(Action("Take back", TAKE_BACK))
    if problem.kind == NO_ANSWER:
        actions.append(Action("End engine", END_ENGINE, "danger"))
        if last_log_line:
            problem = problem.model_copy(update={"fix": f"Last line of its log: “{last_log_line}”. {problem.fix}"})
    if problem.kind != TOO_LONG:
        return of_problem(problem, *actions)
    needed, held = problem.numbers.get("prompt_tokens"), problem.numbers.get("context_tokens")
    text = f"{problem.sentence} {problem.fix}".strip()
    if isinstance(needed, int) and isinstance(held, int):
        text = f"It needs {tokens(needed)} with its history; the KV cache holds {held:,}."
    return Notice("error", "This message does not fit", text, tuple(actions))


def unanswered_words(status: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Below a message of the user that has no answer: words, and buttons as (label, id).

    `status` says what it waits for; "" if for nothing.
    """
    if status:
        return status, (("Take back", TAKE_BACK),)
    return "This message has no answer", (("Send again", SEND_AGAIN), ("Take back", TAKE_BACK))
