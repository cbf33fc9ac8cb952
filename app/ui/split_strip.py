"""The layer strip as a value: which cell has which tier, and how much of it is loaded."""

from app.core.session import EngineStage, ReadSpan
from app.ui.split_inputs import SplitInputs
from app.ui.split_view import Cell, StripView
from app.ui.wording import duration, gib_of, rate, rough_duration
from engine.contract.estimate import banks
from engine.contract.events import Loading
from engine.contract.plan import MemoryPlan, Tier

_CPU_TIERS = (Tier.LOCKED, Tier.PAGEABLE)
_SHOW_TIME_AFTER_S = 1.0  # before that a rate says nothing of what is to come
_TELL_RATE_AFTER_S = 0.1  # and of what was


def strip(inputs: SplitInputs) -> StripView:
    """Cells and note for the state the engine is in."""
    plan = inputs.shown
    if plan is None:
        return StripView()
    cells = _cells(inputs, plan)
    return StripView(
        cells=cells,
        tiers=tuple(Tier) if inputs.on_gpu else _CPU_TIERS,
        two_rows=any(cell.now is not cell.tier for cell in cells if cell.now) if inputs.pending else inputs.changed,
        waits=inputs.session.stage is EngineStage.STARTING,
        note=_note(inputs),
    )


def _cells(inputs: SplitInputs, plan: MemoryPlan) -> tuple[Cell, ...]:
    sizes = banks(plan.model)
    reported = {layer.layer: layer for layer in inputs.session.residency.layers} if inputs.session.residency else {}
    fills = _fills(inputs, plan, sizes)
    cells = []
    same_model = inputs.session.plan is not None and inputs.session.plan.model_dir == plan.model_dir
    for place, (layer, asked) in enumerate(zip(plan.model.moe_layers, plan.tiers, strict=True)):
        tier, cause, now = asked, None, None
        told = reported.get(layer) or inputs.session.settled.get(layer)
        if inputs.session.running and told is not None:
            if inputs.pending is None:
                tier, cause = told.settled, told.cause
            elif same_model:
                now = told.settled
                stays = told.asked is asked and inputs.pending.restart is None  # also where it fell
                tier = now if stays else asked
        cells.append(
            Cell(
                layer=layer,
                tier=tier,
                asked=asked,
                bytes=sizes[place],
                fill=fills[place],
                forced=layer in inputs.wishes.forced,
                cause=cause,
                now=now,
            )
        )
    return tuple(cells)


def _fills(inputs: SplitInputs, plan: MemoryPlan, sizes: tuple[int, ...]) -> list[float]:
    layers = plan.model.moe_layers
    stage, loading = inputs.session.stage, inputs.session.loading
    if stage is EngineStage.STARTING:
        return [0.0] * len(layers)
    if stage not in (EngineStage.LOADING, EngineStage.STOPPING) or loading is None:
        return [1.0] * len(layers)
    done = loading.layers_done
    dense = loading.bytes_total - sum(sizes)
    bank = sizes[done] if done < len(sizes) else 0
    partly = (loading.bytes_done - max(0, dense) - sum(sizes[:done])) / bank if bank else 0.0
    partly = min(max(partly, 0.0), 1.0) if loading.stage == "experts" else 0.0
    return [1.0 if place < done else partly if place == done else 0.0 for place in range(len(layers))]


def _note(inputs: SplitInputs) -> str:
    match inputs.session.stage:
        case EngineStage.STARTING:
            return "Starting the engine"
        case EngineStage.LOADING | EngineStage.CHECKING if inputs.loading is not None:
            return loading_note(inputs.loading, inputs.session.reading)
        case EngineStage.READY if inputs.pending is not None:
            return _pending_note(inputs)
        case EngineStage.READY if inputs.changed:
            return "Top row: asked for. Bottom row: what the engine settled at."
        case EngineStage.READY:
            return f"Granted as asked.{_took(inputs)}"
    return ""


def _pending_note(inputs: SplitInputs) -> str:
    running, pending = inputs.session.plan, inputs.pending
    if pending is None or running is None or pending.plan.model_dir != running.model_dir:
        return "As this model would be loaded."
    after = "after the change" if inputs.session.change is not None or inputs.applying else "after Apply"
    if pending.restart is not None:
        after = "after a restart"
    return f"Top row: now. Bottom row: {after}." if pending.change.layers else "No layer moves."


def loading_note(loading: Loading, reading: ReadSpan | None) -> str:
    """ "Reading layer 35 of 62 · 2.5 GiB/s · 67.4 of 117.8 GiB · about 20 s left"."""
    match loading.stage:
        case "starting":
            return "Starting the engine"
        case "checking":
            return "Comparing one layer between tiers"
        case "cache":
            return "Creating the KV cache"
        case "dense":
            what = "Reading the weights that every token uses"
        case "experts":
            what = f"Reading layer {min(loading.layers_done + 1, loading.layers_total)} of {loading.layers_total}"
    parts = [what]
    per_s = _rate(reading, _SHOW_TIME_AFTER_S)
    if per_s:
        parts.append(rate(per_s))
    parts.append(gib_of(loading.bytes_done, loading.bytes_total))
    if per_s:
        parts.append(f"about {rough_duration((loading.bytes_total - loading.bytes_done) / per_s)} left")
    return " · ".join(parts)


def _rate(reading: ReadSpan | None, after_s: float) -> float | None:
    return None if reading is None or reading.took_s < after_s else reading.bytes_per_s


def _took(inputs: SplitInputs) -> str:
    loading = inputs.loading
    if loading is None or loading.elapsed_s <= 0:
        return ""
    per_s = _rate(inputs.session.reading, _TELL_RATE_AFTER_S)
    read = f", read at {rate(per_s)}" if per_s else ""
    return f" Loaded in {duration(loading.elapsed_s)}{read}."
