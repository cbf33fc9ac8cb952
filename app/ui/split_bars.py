"""The memory bars as values: what other programs use, what the plan takes, and where it must end."""

from app.core.measuring import Measuring
from app.planning.advice import pin_cap
from app.ui.split_inputs import QuotaFacts, SplitInputs
from app.ui.split_view import Bar, Segment, SegmentKind
from engine.contract.ledger import EXPERT_SLOTS, KV_CACHE, TRANSFER_RING, UNPACKED_KV, VRAM_LAYERS, WEIGHTS
from engine.contract.plan import LedgerLine, MemoryPlan, Pool
from engine.contract.units import gib

COMMIT_SHOWN_FROM = 0.9  # share of the commit limit from which on it is worth a line

_KINDS: dict[str, tuple[str, SegmentKind]] = {
    WEIGHTS: ("Weights", "weights"),
    KV_CACHE: ("KV cache", "kv"),
    UNPACKED_KV: ("Unpacked KV", "kv"),
    VRAM_LAYERS: ("Expert layers", "vram"),
    EXPERT_SLOTS: ("Expert slots", "slots"),
    TRANSFER_RING: ("Transfer ring", "slots"),
    "pinned layers": ("Pinned layers", "pinned"),
    "locked layers": ("Locked layers", "locked"),
    "pageable layers": ("Pageable layers", "pageable"),
}
_RUNTIME = "Runtime"  # workspace, driver, engine process: what neither the user nor the slider can change


def bars(inputs: SplitInputs) -> tuple[Bar, ...]:
    """VRAM and pinned quota where there is a GPU, RAM, and the commit charge when it gets close to its limit."""
    plan = inputs.shown
    if plan is None or inputs.facts is None:
        return ()
    lines = plan.ledger
    if inputs.ready and inputs.session.residency is not None and inputs.pending is None:
        lines = inputs.session.residency.ledger_settled
    made = [_ram(inputs, plan, lines), _commit(inputs, lines)]
    if inputs.on_gpu:
        made = [_vram(inputs, plan, lines), _pinned(inputs, lines), *made]
    return tuple(bar for bar in made if bar is not None)


def _segments(lines: tuple[LedgerLine, ...], *pools: Pool) -> tuple[Segment, ...]:
    known = []
    runtime = 0
    for line in lines:
        if line.pool not in pools:
            continue
        if line.what in _KINDS:
            name, kind = _KINDS[line.what]
            known.append(Segment(name, kind, line.bytes))
        else:
            runtime += line.bytes
    order: list[SegmentKind] = ["weights", "runtime", "kv", "slots", "vram", "pinned", "locked", "pageable"]
    if runtime:
        known.append(Segment(_RUNTIME, "runtime", runtime))
    return tuple(sorted(known, key=lambda segment: order.index(segment.kind)))


def _others(used_bytes: int | None, left_over_bytes: int) -> tuple[Segment, ...]:
    left_over_bytes = min(left_over_bytes, used_bytes or 0)
    return (
        Segment("Other apps", "other", (used_bytes or 0) - left_over_bytes),
        Segment("Left-over process", "leftover", left_over_bytes),
    )


def _limit(others: tuple[Segment, ...], plan: MemoryPlan, pool: Pool, total: int) -> int | None:
    budget = plan.budgets.get(pool)
    if budget is None:
        return None
    limit = sum(segment.bytes for segment in others) + budget
    return limit if limit < total else None


def _vram(inputs: SplitInputs, plan: MemoryPlan, lines: tuple[LedgerLine, ...]) -> Bar | None:
    segments = _segments(lines, Pool.VRAM)
    if plan.simulated is not None:
        return Bar("VRAM", segments, plan.simulated.vram_bytes, note="simulated GPU: host memory with these limits")
    gpu = inputs.facts.cuda_gpu if inputs.facts is not None else None
    if gpu is None or gpu.vram_total.value is None:
        return None
    others = _others(gpu.vram_used.value, inputs.left_over.vram_bytes)
    total = gpu.vram_total.value
    return Bar(
        "VRAM", (*others, *segments), total, gpu.name.removeprefix("NVIDIA "), _limit(others, plan, Pool.VRAM, total)
    )


def _pinned(inputs: SplitInputs, lines: tuple[LedgerLine, ...]) -> Bar | None:
    if inputs.measuring is not None and inputs.measuring.what == "pins":
        return _probing(inputs.measuring, inputs.quota)
    quota = inputs.quota
    if quota is None:
        return None
    residency = inputs.session.residency
    segments = (*_others(quota.held_bytes, inputs.left_over.pinned_bytes), *_segments(lines, Pool.PINNED))
    if residency is not None and lines is residency.ledger_settled:
        granted = pin_cap(residency)
        if granted is not None and granted < quota.bytes:
            at = f" at {inputs.ready_at}" if inputs.ready_at else ""
            total = max(granted + quota.held_bytes, sum(segment.bytes for segment in segments))
            return Bar("Pinned quota", segments, total, f"refused above this{at} (was {gib(quota.bytes)})")
    return Bar("Pinned quota", segments, quota.pool_bytes, quota.reason)


def _probing(measuring: Measuring, quota: QuotaFacts | None) -> Bar:
    """The bar grows with the probe."""
    most = measuring.goal_bytes or (0 if quota is None else quota.bytes)
    return Bar(
        "Pinned quota",
        (Segment("Pinned so far", "pinned", measuring.pinned_bytes),),
        max(most, measuring.pinned_bytes),
        "being measured: Splitpin stops at the first refusal and frees everything",
    )


def _ram(inputs: SplitInputs, plan: MemoryPlan, lines: tuple[LedgerLine, ...]) -> Bar | None:
    facts = inputs.facts
    if facts is None or facts.ram_total.value is None:
        return None
    total = facts.ram_total.value
    used = None if facts.ram_available.value is None else total - facts.ram_available.value
    others = _others(used, inputs.left_over.ram_bytes)
    segments = (*others, *_segments(lines, Pool.RAM), *_segments(lines, Pool.PAGEABLE))
    note = facts.cpu or "" if not inputs.on_gpu else ""
    return Bar("RAM", segments, total, note, _limit(others, plan, Pool.RAM, total))


def _commit(inputs: SplitInputs, lines: tuple[LedgerLine, ...]) -> Bar | None:
    facts = inputs.facts
    if facts is None or facts.commit_limit.value is None or facts.commit_used.value is None:
        return None
    bar = Bar(
        "Commit",
        (*_others(facts.commit_used.value, 0), *_segments(lines, Pool.COMMIT)),
        facts.commit_limit.value,
        "memory promised by the system: RAM and page file",
    )
    return bar if bar.used_bytes >= COMMIT_SHOWN_FROM * bar.total_bytes else None
