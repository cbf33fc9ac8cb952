"""What another split of the running engine changes, as a value and in words."""

from app.core.session import EngineStage, SessionState, SplitChange
from app.planning.change import Change, Move, change_of, same_split, why_restart
from app.ui.split_inputs import Pending, SplitInputs
from app.ui.split_view import ChangeView
from app.ui.wording import TIER_WORDS, layers, percent, rough_duration, shortened, tokens
from engine.contract.errors import Problem
from engine.contract.plan import MemoryPlan
from engine.contract.units import gib

APPLY, RESTART, KEEP, CALL_OFF = "Apply", "Restart to apply", "Keep as it is", "Call off"
_LONGEST_NAME = 36
_FIRST = "The answer in progress is finished first"
_WAITS = "Waits until the answer in progress is complete"
_APPLY_HINT = f"Change the running engine without loading again. {_FIRST} (F5)"
_RESTART_HINT = f"Stop the engine and load again with this split. {_FIRST} (F5)"


def pending_of(session: SessionState, plan: MemoryPlan | None, refused: Problem | None = None) -> Pending | None:
    """What is to take the place of the split that runs; None where that is the same.

    Args:
        plan: for what is wished for now.
        refused: what the engine said when it was asked for this very plan.
    """
    running, report = session.plan, session.residency
    if session.change is not None:
        plan = session.change.plan
    if session.stage is not EngineStage.READY or plan is None or running is None or report is None:
        return None
    if same_split(running, plan):
        return None
    why = refused or why_restart(running, report, plan)
    return Pending(plan, change_of(running, report, plan), why, refused is not None)


def change_view(inputs: SplitInputs) -> ChangeView | None:
    """Beside the slider of a running engine; None while nothing else is wished for."""
    session, pending = inputs.session, inputs.pending
    if not inputs.ready:
        return None
    if pending is None:
        return _without_plan(inputs)
    text = moves_words(pending.change)
    if inputs.applying:
        return ChangeView("Looking once more at the memory of this PC", text, busy=True)
    if session.change is not None:
        return _under_way(session, text)
    if pending.restart is None:
        return ChangeView(_title(pending.change), text, apply=APPLY, hint=_APPLY_HINT, undo=KEEP)
    return ChangeView(
        _restart_title(inputs, pending),
        " ".join((_reason(inputs, pending, pending.restart), _load_words(inputs))).strip(),
        tone="warn",
        apply=RESTART,
        enabled=inputs.blocked is None,
        hint=inputs.blocked or _RESTART_HINT,
        undo=KEEP,
    )


def _without_plan(inputs: SplitInputs) -> ChangeView | None:
    """What is wished for has no plan, which a notice explains, or is what runs."""
    if not inputs.touched or inputs.problem is None:
        return None
    why = "What you chose does not fit." if inputs.shape is not None else f"{_brief(inputs.model_name)} cannot be read."
    return ChangeView("The engine runs on with the split it has", why, "warn", undo=KEEP)


def _under_way(session: SessionState, text: str) -> ChangeView:
    change = session.change
    assert change is not None
    if session.request is not None:
        after = "Then the engine is started again" if change.restart else f"Then: {text}"
        return ChangeView(_WAITS, after, undo=CALL_OFF, busy=True)
    if change.restart:
        return ChangeView("The engine is started again", text, busy=True)
    share = share_moved(change)
    far = "" if share is None else f" ({percent(share)})"
    return ChangeView(f"The split is being changed{far}. Chats go on when it is done", text, busy=True, share=share)


def share_moved(change: SplitChange | None) -> float | None:
    """How far the engine is with a change, 0..1; None: not told, or nothing moves."""
    moving = None if change is None else change.moving
    return None if moving is None or not moving.bytes_total else moving.bytes_done / moving.bytes_total


def _title(change: Change) -> str:
    if not change.layers:
        return "Apply moves no layer"
    size = sum(move.bytes for move in change.moves)
    return f"Apply moves {layers(change.layers)}, {gib(size)}"


def _restart_title(inputs: SplitInputs, pending: Pending) -> str:
    if _other_model(inputs):
        return f"{_brief(inputs.model_name)} needs a restart of the engine"
    return "This split needs a restart of the engine"


def _reason(inputs: SplitInputs, pending: Pending, problem: Problem) -> str:
    if pending.refused:
        return "The engine was asked for it and refused."
    if _other_model(inputs):
        return f"It runs {_brief(inputs.session.model_name)}, whose memory is given back first."
    return problem.sentence


def _brief(name: str | None) -> str:
    return shortened(name or "The model", _LONGEST_NAME)


def _other_model(inputs: SplitInputs) -> bool:
    running, pending = inputs.session.plan, inputs.pending
    return running is not None and pending is not None and running.model_dir != pending.plan.model_dir


def _load_words(inputs: SplitInputs) -> str:
    loading = inputs.loading
    if loading is None or loading.elapsed_s < 1 or _other_model(inputs):
        return ""
    return f"Loading took {rough_duration(loading.elapsed_s)} last time."


def moves_words(change: Change) -> str:
    """ "VRAM to pinned: 4 layers, 7.6 GiB · KV cache 34,048 to 66,816 tokens, 7.8 GiB more"."""
    parts = [_move_words(move) for move in change.moves]
    before, after = change.context_tokens
    if before != after:
        parts.append(f"Context {before:,} to {tokens(after)}{_more_words(change.kv_bytes)}")
    slots_before, slots_after = change.expert_slots
    if slots_before != slots_after:
        parts.append(f"Expert slots {slots_before:,} to {slots_after:,}")
    return " · ".join(parts) or "Only limits differ"


def _move_words(move: Move) -> str:
    source, target = TIER_WORDS[move.from_tier], TIER_WORDS[move.to_tier]
    return f"{source[0].upper()}{source[1:]} to {target}: {layers(move.layers)}, {gib(move.bytes)}"


def _more_words(kv_bytes: tuple[int, int]) -> str:
    before, after = kv_bytes
    if before == after:
        return ""
    return f", {gib(abs(after - before))} {'more' if after > before else 'less'} for the KV cache"
