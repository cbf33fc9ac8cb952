"""The Split page as a value: one pure function from everything it depends on."""

from app.core.measuring import Measuring
from app.core.session import EngineStage
from app.planning.change import kv_bytes
from app.ui.split_bars import bars
from app.ui.split_change import change_view, share_moved
from app.ui.split_inputs import SplitInputs
from app.ui.split_speed import speed_view
from app.ui.split_strip import strip
from app.ui.split_view import (
    MainButton,
    Marker,
    PillView,
    PinnedView,
    QuickMark,
    SliderView,
    SplitView,
    StripView,
    Tag,
    Tile,
)
from app.ui.wording import exact_gib, gib_of, layers, over_minutes, percent, shortened, tokens
from engine.contract.estimate import banks
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.units import gib

NO_GPU = Tag("No NVIDIA GPU: CPU only", "No NVIDIA GPU with CUDA was found; the model runs on the CPU")
_NOTHING_TO_TRADE = "Nothing to trade: the longest context of this model fits beside all layers in VRAM"
_ONE_STOP = "Only one split fits"
_LONGEST_MACHINE = 34
_QUICK_TOKENS = (8_192, 32_768, 65_536, 131_072)


def present(inputs: SplitInputs) -> SplitView:
    """Everything on the page. The plan on screen is the plan that is sent."""
    cells = strip(inputs)
    return SplitView(
        subtitle=_subtitle(inputs),
        tags=_tags(inputs),
        pill=pill(inputs),
        button=_button(inputs),
        tiles=_tiles(inputs, cells),
        speed=speed_view(inputs),
        slider=_slider(inputs, cells),
        quick_marks=_quick_marks(inputs),
        strip=cells,
        pinned=_pinned(inputs),
        memory_note=_memory_note(inputs),
        memory_hint=inputs.session.residency.self_test if inputs.ready and inputs.session.residency else "",
        change=change_view(inputs),
        can_choose=_button(inputs).action == "start" or (inputs.ready and inputs.adjustable),
        bars=bars(inputs),
    )


def _subtitle(inputs: SplitInputs) -> str:
    shape = inputs.shape
    if shape is None:
        return "" if inputs.problem is not None or inputs.model_name is None else "Reading the model folder"
    if inputs.facts is None:
        return "Reading this machine"
    sizes = banks(shape)
    each = exact_gib(min(sizes)) if min(sizes) == max(sizes) else f"{exact_gib(min(sizes))} to {exact_gib(max(sizes))}"
    return f"{len(sizes)} expert layers of {each} · {gib(sum(sizes))} in total"


def _tags(inputs: SplitInputs) -> tuple[Tag, ...]:
    made = []
    if inputs.wishes.simulated_gpu is not None or (inputs.shown is not None and inputs.shown.simulated is not None):
        made.append(Tag("Simulated GPU", "Host memory with the limits of a GPU; it computes on the CPU"))
    elif inputs.facts is not None and not inputs.on_gpu:
        made.append(NO_GPU)
    if inputs.blocked is not None and not inputs.replayed:
        made.append(Tag("Plan only", inputs.blocked))
    if inputs.facts is not None and inputs.facts.recorded:
        label = inputs.facts.label
        made.append(Tag(f"Recorded machine: {shortened(label, _LONGEST_MACHINE)}", label))
    return tuple(made)


def pill(inputs: SplitInputs) -> PillView:
    """Shape and word of the engine's state."""
    if inputs.measuring is not None:
        return _measuring_pill(inputs.measuring)
    if inputs.starting:
        return PillView("Starting", "accent", "arc", None)
    match inputs.session.stage:
        case EngineStage.STARTING:
            return PillView("Starting", "accent", "arc", None)
        case EngineStage.LOADING:
            share = inputs.session.share_loaded
            return PillView(f"Loading {percent(share)}", "accent", "arc", share)
        case EngineStage.CHECKING:
            return PillView("Checking", "accent", "arc", None)
        case EngineStage.READY if inputs.session.stalled is not None:
            return PillView(f"No answer for {over_minutes(inputs.session.stalled.running_s)}", "warn", "triangle")
        case EngineStage.READY if inputs.session.change is not None and inputs.session.request is None:
            return PillView("Changing the split", "accent", "arc", share_moved(inputs.session.change))
        case EngineStage.READY if inputs.changed:
            return PillView("Ready, split changed", "warn", "triangle")
        case EngineStage.READY if inputs.session.request is not None:
            return PillView("Answering", "ok", "dot")
        case EngineStage.READY:
            return PillView("Ready", "ok", "dot")
        case EngineStage.STOPPING:
            return PillView("Stopping", "text2", "arc", None)
        case EngineStage.FAILED:
            return PillView("Stopped by an error", "error", "cross")
        case EngineStage.STOPPED:
            pass
    if inputs.model_name is None:
        return PillView("No model")
    if inputs.shape is None and inputs.problem is not None:
        return PillView("Model not readable", "warn", "triangle")
    return PillView("Stopped")


def _measuring_pill(measuring: Measuring) -> PillView:
    if measuring.what == "pins":
        goal = measuring.goal_bytes
        share = min(1.0, measuring.pinned_bytes / goal) if goal else None
        return PillView(f"Measuring {gib(measuring.pinned_bytes)}", "accent", "arc", share)
    return PillView("Measuring speed" if measuring.what == "speed" else "Measuring", "accent", "arc", None)


def _button(inputs: SplitInputs) -> MainButton:
    if inputs.measuring is not None:
        return MainButton("Cancel", "measuring", hint="Stop measuring and free everything")
    if inputs.starting:
        return MainButton("Start engine", "starting", enabled=False, hint="Looking for left-over engines")
    match inputs.session.stage:
        case EngineStage.STARTING | EngineStage.LOADING | EngineStage.CHECKING:
            return MainButton("Cancel", "stop", hint="Stop loading and free the memory (Shift+F5)")
        case EngineStage.READY:
            return MainButton("Stop engine", "stop", hint="Stop the engine and free its memory (Shift+F5)")
        case EngineStage.STOPPING:
            return MainButton("Stop engine", "stopping", enabled=False, hint="The engine is stopping")
        case EngineStage.STOPPED | EngineStage.FAILED:
            pass
    if inputs.blocked is not None:
        return MainButton("Start engine", "start", enabled=False, hint=inputs.blocked)
    if inputs.plan is not None:
        return MainButton("Start engine", "start", hint="Start the engine with this split (F5)")
    why = "Choose a model first" if inputs.model_name is None else "Reading the model and the machine"
    return MainButton("Start engine", "start", enabled=False, hint=inputs.problem.sentence if inputs.problem else why)


def _tiles(inputs: SplitInputs, cells: StripView) -> tuple[Tile, ...]:
    plan = inputs.shown
    if plan is None:
        return ()
    context = _context_tile(inputs, plan)
    if plan.device == "cpu":
        return context, _cpu_layers_tile(cells), _ram_tile(plan)
    return context, _vram_tile(plan, cells), _pinned_tile(inputs, plan, cells), _locked_tile(inputs, plan, cells)


def _context_tile(inputs: SplitInputs, plan: MemoryPlan) -> Tile:
    """The context of the plan, or the wish if the plan on screen is not for it."""
    wish = inputs.wishes.context_tokens
    if inputs.wishing and inputs.plan is None and wish is not None and wish != plan.context_tokens:
        return Tile("Context (KV cache)", tokens(wish), f"does not fit; {plan.context_tokens:,} shown", "error")
    now = ""
    if inputs.pending is not None and (before := inputs.pending.change.context_tokens[0]) != plan.context_tokens:
        now = f"now {before:,} · "
    return Tile("Context (KV cache)", tokens(plan.context_tokens), f"{now}{gib(kv_bytes(plan))} KV cache")


def _changed(plan: MemoryPlan, cells: StripView, tier: Tier) -> str:
    """ "asked for 50", or nothing if that many settled."""
    asked = plan.layers_in(tier)
    return f"asked for {asked} · " if cells.count(tier) != asked else ""


def _now(cells: StripView, tier: Tier) -> str:
    """ "now 8", where another number would be there after a change."""
    is_new = any(cell.now is not None for cell in cells.cells)
    now = sum(cell.now is tier for cell in cells.cells)
    return f"now {now} · " if is_new and now != cells.count(tier) else ""


def _vram_tile(plan: MemoryPlan, cells: StripView) -> Tile:
    count, differs = cells.count(Tier.VRAM), _changed(plan, cells, Tier.VRAM)
    detail = gib(cells.tier_bytes(Tier.VRAM)) if count else "all are in RAM"
    detail = _now(cells, Tier.VRAM) + differs + detail
    return Tile("Layers in VRAM", f"{count}", detail, "warn" if differs else "muted")


def _pinned_tile(inputs: SplitInputs, plan: MemoryPlan, cells: StripView) -> Tile:
    count, differs = cells.count(Tier.PINNED), _changed(plan, cells, Tier.PINNED)
    size = cells.tier_bytes(Tier.PINNED)
    quota = inputs.quota
    now = _now(cells, Tier.PINNED)
    if differs or now:
        detail = f"{now}{differs}{gib(size)}"
    elif quota is None:
        detail = gib(size)
    elif quota.assumed:
        detail = f"{gib_of(size, quota.bytes)} (assumed)"
    else:
        detail = f"{gib_of(size, quota.bytes)} quota"
    return Tile("Pinned layers", f"{count}", detail, "warn" if differs else "muted")


def _locked_tile(inputs: SplitInputs, plan: MemoryPlan, cells: StripView) -> Tile:
    count, pageable = cells.count(Tier.LOCKED), cells.count(Tier.PAGEABLE)
    size = gib(cells.tier_bytes(Tier.LOCKED))
    if pageable:
        allowed = inputs.plan is not None or not inputs.wishing
        verb = "is" if pageable == 1 else "are"
        does = "does" if pageable == 1 else "do"
        detail = f"{layers(pageable)} {verb} pageable" if allowed else f"{layers(pageable)} {does} not fit in RAM"
        return Tile("Locked layers", f"{count} + {pageable}", detail, "warn" if allowed else "error")
    if differs := _changed(plan, cells, Tier.LOCKED):
        return Tile("Locked layers", f"{count}", f"{differs}{size}", "warn")
    now = _now(cells, Tier.LOCKED)
    detail = f"{size} on the CPU" if count else "none runs on the CPU"
    return Tile("Locked layers", f"{count}", f"{now}{size if count else 'none'}" if now else detail)


def _cpu_layers_tile(cells: StripView) -> Tile:
    size = sum(cell.bytes for cell in cells.cells)
    pageable = cells.count(Tier.PAGEABLE)
    detail = f"{gib(size)} on the CPU"
    if pageable:
        return Tile("Layers in RAM", f"{len(cells.cells)}", f"{detail}; {pageable} may be moved to disk", "warn")
    return Tile("Layers in RAM", f"{len(cells.cells)}", detail)


def _ram_tile(plan: MemoryPlan) -> Tile:
    budget = plan.budgets.get(Pool.RAM)
    detail = "" if budget is None else f"of {gib(budget)} that can be used"
    return Tile("RAM for this split", gib(plan.pool_bytes(Pool.RAM) + plan.pool_bytes(Pool.PAGEABLE)), detail)


def _slider(inputs: SplitInputs, cells: StripView) -> SliderView:
    stops, plan = inputs.stops, inputs.shown
    if not stops.stops or plan is None:
        return SliderView()
    position, unmet = _position(inputs, plan)
    bank_count = len(plan.model.moe_layers)
    described = [f"{tokens(plan.context_tokens)} of context"]
    if inputs.on_gpu:
        words = {Tier.VRAM: "in VRAM", Tier.PINNED: "pinned", Tier.LOCKED: "locked", Tier.PAGEABLE: "pageable"}
        described += [f"{cells.count(tier)} {word}" for tier, word in words.items() if cells.count(tier)]
    else:
        described.append(f"{layers(bank_count)} in RAM")
    return SliderView(
        stops=len(stops.stops),
        position=position,
        markers=_markers(inputs),
        assumed=stops.pin_full is not None and stops.pin_full.assumed,
        unmet=unmet,
        enabled=inputs.adjustable and len(stops.stops) > 1,
        described=", ".join(described),
        hint="" if inputs.adjustable else "The split can be changed when the engine is ready",
        captions=_captions(inputs, plan),
        running=_running_stop(inputs),
        longest=tokens(stops.stops[-1].context_tokens),
    )


def _running_stop(inputs: SplitInputs) -> int | None:
    running = inputs.session.plan
    if (
        running is None
        or not inputs.touched
        or (inputs.plan is not None and inputs.plan.model_dir != running.model_dir)
    ):
        return None
    stops = enumerate(inputs.stops.stops)
    return next((index for index, stop in stops if stop.context_tokens >= running.context_tokens), None)


def _captions(inputs: SplitInputs, plan: MemoryPlan) -> tuple[str, str]:
    if len(inputs.stops.stops) > 1 or inputs.plan is None:
        return ("More layers in VRAM", "More context") if inputs.on_gpu else ("Less context", "More context")
    is_all = plan.layers_in(Tier.VRAM) == len(plan.tiers) and plan.context_tokens == plan.model.max_context_tokens
    return (_NOTHING_TO_TRADE if is_all else _ONE_STOP), ""


def _position(inputs: SplitInputs, plan: MemoryPlan) -> tuple[int, bool]:
    """The smallest stop with at least the context that is shown, or the last one and True if none has it."""
    wanted = plan.context_tokens
    if inputs.wishing and inputs.wishes.context_tokens is not None:
        wanted = inputs.wishes.context_tokens
    for index, stop in enumerate(inputs.stops.stops):
        if stop.context_tokens >= wanted:
            return index, inputs.plan is None and inputs.wishing
    return len(inputs.stops.stops) - 1, True


def _markers(inputs: SplitInputs) -> tuple[Marker, ...]:
    made = []
    pin, ram = inputs.stops.pin_full, inputs.stops.ram_full
    if pin is not None:
        most = layers(pin.layers)
        made.append(
            Marker(pin.stop, "pin", f"Pin quota full at {most}" if pin.stop else f"Pin quota full: {most} at most")
        )
    if ram is not None:
        full = "Commit limit reached" if ram.limit == "commit" else "RAM full"
        made.append(Marker(ram.stop, "ram", f"{full} at {layers(ram.layers)}" if inputs.on_gpu else full))
    return tuple(sorted(made, key=lambda marker: marker.stop))


def _quick_marks(inputs: SplitInputs) -> tuple[QuickMark, ...]:
    if not inputs.adjustable or len(inputs.stops.stops) < 2 or inputs.shape is None:
        return ()
    most = min(inputs.shape.max_context_tokens, inputs.stops.stops[-1].context_tokens)
    marks = [QuickMark(f"{count // 1024}k", count) for count in _QUICK_TOKENS if count < most]
    return (*marks, QuickMark("Largest that fits", None))


def _pinned(inputs: SplitInputs) -> PinnedView:
    plan = inputs.shown
    if plan is None or not inputs.on_gpu:
        return PinnedView()
    bank = max(banks(plan.model))
    outside = len(plan.tiers) - plan.layers_in(Tier.VRAM)
    pinned = plan.layers_in(Tier.PINNED)
    most = outside if inputs.quota is None else min(outside, inputs.quota.bytes // bank)
    return PinnedView(
        visible=outside > 0,
        value=pinned,
        most=max(most, pinned),
        outside_vram=outside,
        fill=inputs.wishes.pinned_layers is None,
        enabled=inputs.adjustable,
    )


def _memory_note(inputs: SplitInputs) -> str:
    residency = inputs.session.residency
    if inputs.pending is not None:
        return "What the other split takes. The engine reports the real numbers afterwards."
    if inputs.ready and residency is not None:
        at = f" at {inputs.ready_at}" if inputs.ready_at else ""
        passed = " Self-test passed." if residency.layers else ""  # an engine that fails it is never ready
        return f"Reported by the engine{at}.{passed}"
    source = "the model's tensor sizes" if inputs.shape is None or inputs.shape.source == "headers" else "config.json"
    return f"Estimate from {source}. The engine reports the real numbers after loading."
