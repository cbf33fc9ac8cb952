"""What the tray says: glyph, tool tip and menu, as one value. No Qt here."""

from dataclasses import dataclass
from typing import Literal

from app.core.session import EngineStage, SessionState
from app.orphans.verdicts import Orphan
from app.ui.wording import counts, over_minutes, percent, short_name, tokens
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.units import gib

LONGEST_TIP = 127  # Windows keeps 128 UTF-16 units, the end mark included
LONGEST_CAPTION = 48  # a menu is as wide as its longest line; the page has the whole sentence
GlyphKind = Literal["stopped", "loading", "ready"]
Badge = Literal["", "warn", "error"]


@dataclass(frozen=True, slots=True)
class Glyph:
    """A ring: thin when stopped, an arc of `share` while loading, bytes per tier when ready."""

    kind: GlyphKind = "stopped"
    shares: tuple[tuple[Tier, int], ...] = ()
    share: float = 0.0
    badge: Badge = ""


@dataclass(frozen=True, slots=True)
class TrayItem:
    """A line of the menu. `id` None is a caption; an empty text is a separator."""

    text: str
    id: str | None = None
    enabled: bool = True
    icon: str = ""
    strong: bool = False


SEPARATOR = TrayItem("")


@dataclass(frozen=True, slots=True)
class TrayView:
    glyph: Glyph
    tip: str
    items: tuple[TrayItem, ...]


@dataclass(frozen=True, slots=True)
class TrayInputs:
    """`why_not` says why Start is impossible now; None: it is possible. `restart`: what Start is after an error, where
    it is not the same again."""

    session: SessionState
    model_name: str | None = None
    orphans: tuple[Orphan, ...] = ()
    why_not: str | None = None
    restart: str = ""


def tray(inputs: TrayInputs) -> TrayView:
    """Everything the tray shows."""
    return TrayView(_glyph(inputs), tip(inputs), _items(inputs))


def _settled(session: SessionState) -> tuple[tuple[Tier, int, int], ...]:
    """(tier, layers, bytes) of what the engine reported."""
    layers = () if session.residency is None else session.residency.layers
    return tuple(
        (tier, sum(x.settled is tier for x in layers), sum(x.bytes for x in layers if x.settled is tier))
        for tier in Tier
    )


def _share(session: SessionState) -> float:
    return 1.0 if session.stage is EngineStage.CHECKING else session.share_loaded


def _loading(session: SessionState) -> bool:
    return session.stage in (EngineStage.STARTING, EngineStage.LOADING, EngineStage.CHECKING, EngineStage.STOPPING)


def _glyph(inputs: TrayInputs) -> Glyph:
    session = inputs.session
    if session.stage is EngineStage.READY and session.residency is not None:
        shares = tuple((tier, size) for tier, _, size in _settled(session) if size)
        return Glyph("ready", shares, badge="warn" if session.residency.fallen or session.stalled is not None else "")
    if session.stage is EngineStage.STOPPING:
        return Glyph()
    if _loading(session):
        return Glyph("loading", share=_share(session))
    if session.stage is EngineStage.FAILED:
        return Glyph(badge="error")
    return Glyph(badge="warn" if inputs.orphans else "")


def utf16_units(text: str) -> int:
    """How long Windows finds a text."""
    return len(text.encode("utf-16-le")) // 2


def _fitted(before: str, name: str, after: str) -> str:
    """`before` + name + `after`, the name cut so that the whole is short enough; the counts stay."""
    room = LONGEST_TIP - utf16_units(before + after)
    if utf16_units(name) > room:
        while name and utf16_units(name) > room - 1:
            name = name[:-1]
        name += "…"
    return f"{before}{name}{after}"


def tip(inputs: TrayInputs) -> str:
    """The tool tip: state first, then model, counts per tier and VRAM."""
    session, name = inputs.session, inputs.model_name or "no model"
    if session.stage is EngineStage.READY and session.residency is not None and session.plan is not None:
        state = _running_words(session)
        if session.residency.fallen:
            state += ", split changed"
        return _fitted(f"Splitpin: {state}. ", name, f", {_facts(session, session.plan)}.")
    if session.stage is EngineStage.STOPPING:
        return _fitted("Splitpin: stopping. ", name, "")
    if session.stage is EngineStage.STARTING:
        return _fitted("Splitpin: starting. ", name, "")
    if _loading(session):
        return _fitted(f"Splitpin: loading {percent(_share(session))}. ", name, "")
    if session.stage is EngineStage.FAILED:
        return _fitted("Splitpin: stopped by an error. ", name, "")
    if inputs.orphans:
        held = sum((orphan.rss_bytes or 0) + (orphan.gpu_bytes or 0) for orphan in inputs.orphans)
        return f"Splitpin: stopped. Left-over processes found: {len(inputs.orphans)} ({gib(held)})."
    return _fitted("Splitpin: stopped. ", name, "")


def _running_words(session: SessionState) -> str:
    """What an engine that has loaded does."""
    if session.stalled is not None:
        return f"no answer for {over_minutes(session.stalled.running_s)}"
    if session.change is not None and session.request is None:
        return "changing the split"
    return "answering" if session.request is not None else "ready"


def _facts(session: SessionState, plan: MemoryPlan) -> str:
    per_tier = {tier: count for tier, count, _ in _settled(session)}
    said = f"{tokens(plan.context_tokens)}. {counts(per_tier)}"
    residency = session.residency
    if residency is not None and plan.device != "cpu":
        vram = sum(line.bytes for line in residency.ledger_settled if line.pool is Pool.VRAM)
        said += f". VRAM {gib(vram)}"
    return said


def _items(inputs: TrayInputs) -> tuple[TrayItem, ...]:
    session, name = inputs.session, short_name(inputs.model_name or "no model")
    opening = TrayItem("Open Splitpin", "open", strong=True)
    quitting = TrayItem("Quit Splitpin and stop engine" if session.running else "Quit Splitpin", "quit")
    if session.stage is EngineStage.READY:
        facts = "" if session.plan is None else _facts(session, session.plan).split(". VRAM")[0].replace(". ", " · ")
        address = f"{session.host}:{session.port}"
        stop = TrayItem("Stop engine", "stop", icon="stop")
        words = "ready"
        if session.stalled is not None:
            stop = TrayItem("End engine", "end_engine", icon="warn")
        if session.stalled is not None or session.change is not None:
            words = _running_words(session)
        return (
            TrayItem(f"{words[0].upper()}{words[1:]} · {name}"),
            TrayItem(facts),
            SEPARATOR,
            opening,
            TrayItem("New chat", "new_chat"),
            SEPARATOR,
            TrayItem(f"Copy API address  {address}", "copy_api", enabled=session.api_base is not None, icon="copy"),
            stop,
            SEPARATOR,
            quitting,
        )
    if session.stage is EngineStage.STOPPING:
        return TrayItem(f"Stopping · {name}"), SEPARATOR, opening, SEPARATOR, quitting
    if _loading(session):
        done = session.loading
        layer = ""
        if done is not None and done.layers_total:
            layer = f", layer {min(done.layers_done + 1, done.layers_total)} of {done.layers_total}"
        return (
            TrayItem(
                "Starting" if session.stage is EngineStage.STARTING else f"Loading {percent(_share(session))}{layer}"
            ),
            SEPARATOR,
            opening,
            TrayItem("Cancel loading", "stop", icon="stop"),
            SEPARATOR,
            quitting,
        )
    start = TrayItem("Start engine", "start", enabled=inputs.why_not is None, icon="play")
    if inputs.why_not is not None:
        start = TrayItem(f"Start engine: {inputs.why_not}", "start", enabled=False, icon="play")
    if session.stage is EngineStage.FAILED:
        why = session.problem.sentence if session.problem is not None else "The engine gave no reason"
        log = (TrayItem("Show log", "log"),) if session.log_file is not None else ()
        start = TrayItem(inputs.restart, "restart", icon="play") if inputs.restart else start
        caption = TrayItem(_cut(why.removesuffix("."), LONGEST_CAPTION))
        return TrayItem("Stopped by an error"), caption, SEPARATOR, opening, *log, start, SEPARATOR, quitting
    if inputs.orphans:
        return (*_orphan_items(inputs.orphans), SEPARATOR, opening, start, SEPARATOR, quitting)
    return TrayItem(f"Stopped · {name}"), SEPARATOR, opening, start, SEPARATOR, quitting


def _orphan_items(orphans: tuple[Orphan, ...]) -> tuple[TrayItem, ...]:
    first = orphans[0]
    held = [f"{gib(size)} {pool}" for size, pool in ((first.gpu_bytes, "VRAM"), (first.rss_bytes, "RAM")) if size]
    pid = first.pids[0]
    caption = f"PID {pid} · {', '.join(held)}" if held else f"PID {pid}"
    details = TrayItem("Show details", "open")
    if first.confidence != "ours":
        return TrayItem("Stopped · a process may be left over"), TrayItem(caption), SEPARATOR, details
    end = TrayItem(f"End process {pid}", "end", icon="warn")
    return TrayItem("Stopped · engine process left over"), TrayItem(caption), SEPARATOR, end, details


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
