"""Laws of the planner over random machines, models and wishes; in CI 2,000 cases, the same ones every time.

No plan exceeds a pool, loading included; more KV never brings layers back; more memory never makes a plan worse; what
the user fixed is kept; each change a refusal offers is enough on its own.
"""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.planning.held import Held, facts_without
from app.planning.planner import make_plan
from app.planning.wishes import Wishes
from engine.contract.errors import FixOption, NotEnoughMemoryError, SplitpinError, UsageError
from engine.contract.estimate import banks, slot_bytes
from engine.contract.facts import GpuFacts, HardwareFacts, Reading, Source
from engine.contract.formats import WeightFormat, alike, usual_storage
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.shape import ModelShape
from engine.contract.units import GIB
from tests.app.planning.test_laws import machines, shapes, wish_lists
from tests.support.machines import gpu, machine, measured

_PROFILE = settings.get_profile(settings.get_current_profile_name())
CASES = settings(max_examples=5 * _PROFILE.max_examples // 2, derandomize=True)  # 500 for each law in CI


@st.composite
def uneven_shapes(draw: st.DrawFn) -> ModelShape:
    """Models whose layers may be stored in different formats."""
    shape = draw(shapes())
    if draw(st.booleans()):
        return shape
    formats = st.sampled_from([WeightFormat.BF16, WeightFormat.FP8_BLOCK, WeightFormat.NVFP4])
    count = len(shape.moe_layers)
    chosen = draw(st.lists(formats, min_size=count, max_size=count))
    return shape.model_copy(update={"storages": tuple(alike(usual_storage(one)) for one in chosen)})


@st.composite
def fixed_wishes(draw: st.DrawFn) -> Wishes:
    """Wishes with reserves beside the usual ones."""
    return draw(wish_lists()).model_copy(
        update={
            "vram_reserve_bytes": draw(st.none() | st.integers(0, 8 * GIB)),
            "ram_reserve_bytes": draw(st.none() | st.integers(0, 16 * GIB)),
        }
    )


left_over = st.lists(
    st.builds(
        Held,
        pid=st.integers(2, 9999),
        name=st.just("python.exe"),
        ram_bytes=st.integers(0, 64 * GIB),
        vram_bytes=st.integers(0, 24 * GIB),
    ),
    max_size=3,
    unique_by=lambda one: one.pid,
)


def _try(shape: ModelShape, facts: HardwareFacts, wishes: Wishes, held: Any = ()) -> MemoryPlan | SplitpinError:
    try:
        return make_plan(shape, facts, wishes, model_dir="x", held=held)
    except SplitpinError as error:
        return error


@CASES
@given(uneven_shapes(), machines(), fixed_wishes())
def test_no_plan_exceeds_a_pool_and_what_is_fixed_is_kept(
    shape: ModelShape, facts: HardwareFacts, wishes: Wishes
) -> None:
    plan = _try(shape, facts, wishes)
    if not isinstance(plan, MemoryPlan):
        assert isinstance(plan, NotEnoughMemoryError | UsageError)
        return
    sizes = dict(zip(shape.moe_layers, banks(shape), strict=True))
    placed = dict(zip(shape.moe_layers, plan.tiers, strict=True))
    for pool in Pool:
        budget = plan.budgets[pool]
        assert budget is None or max(plan.pool_bytes(pool), plan.load_peak.get(pool, 0)) <= budget
    ring = plan.ring_experts * slot_bytes(shape) if plan.ring_staged else 0
    pinned = sum(sizes[at] for at, tier in placed.items() if tier is Tier.PINNED)
    assert plan.pool_bytes(Pool.PINNED) == pinned + ring
    assert all(placed[layer] is tier for layer, tier in wishes.forced.items())
    assert plan.prefill_chunk == wishes.prefill_chunk
    if wishes.vram_layers is not None:
        assert plan.layers_in(Tier.VRAM) == wishes.vram_layers
    if wishes.context_tokens is not None:
        wanted = min(wishes.context_tokens, shape.max_context_tokens)
        assert wanted <= plan.context_tokens < wanted + 256
    if wishes.pinned_layers is not None and plan.device != "cpu" and plan.budgets[Pool.PINNED] is None:
        elsewhere = [tier for tier in wishes.forced.values() if tier in (Tier.LOCKED, Tier.PAGEABLE)]
        outside = len(plan.tiers) - plan.layers_in(Tier.VRAM) - len(elsewhere)
        assert plan.layers_in(Tier.PINNED) == min(wishes.pinned_layers, outside)
    if wishes.pin_cap_bytes is not None:
        assert plan.pool_bytes(Pool.PINNED) <= wishes.pin_cap_bytes
    forced_pageable = list(wishes.forced.values()).count(Tier.PAGEABLE)
    assert wishes.allow_pageable or plan.layers_in(Tier.PAGEABLE) == forced_pageable


@CASES
@given(uneven_shapes(), machines(), fixed_wishes(), st.integers(1, 200_000), st.integers(1, 200_000))
def test_more_kv_never_lowers_host_bytes_nor_raises_layers_in_vram(
    shape: ModelShape, facts: HardwareFacts, wishes: Wishes, tokens: int, more: int
) -> None:
    short = _try(shape, facts, wishes.model_copy(update={"context_tokens": tokens}))
    long = _try(shape, facts, wishes.model_copy(update={"context_tokens": tokens + more}))
    if isinstance(long, MemoryPlan):
        assert isinstance(short, MemoryPlan), "what fits with more fits with less"
        assert long.layers_in(Tier.VRAM) <= short.layers_in(Tier.VRAM)
        assert _on_host(long) >= _on_host(short)


def _on_host(plan: MemoryPlan) -> int:
    outside = zip(plan.tiers, banks(plan.model), strict=True)
    return sum(size for tier, size in outside if tier is not Tier.VRAM)


@CASES
@given(
    uneven_shapes(),
    st.integers(4 * GIB, 128 * GIB),
    st.integers(2 * GIB, 40 * GIB),
    st.none() | st.integers(8 * GIB, 160 * GIB),
    st.none() | st.integers(0, 64 * GIB),
    st.tuples(*[st.sampled_from([0, 0, GIB, 9 * GIB])] * 4),
    fixed_wishes(),
    st.integers(1, 100_000),
)
def test_more_memory_never_makes_a_plan_worse(
    shape: ModelShape,
    ram: int,
    vram: int,
    commit: int | None,
    quota: int | None,
    more: tuple[int, int, int, int],
    wishes: Wishes,
    tokens: int,
) -> None:
    wishes = wishes.model_copy(update={"context_tokens": tokens, "simulated_gpu": None, "pin_cap_bytes": None})
    small = _try(shape, _machine(ram, vram, commit, quota), wishes)
    more_ram, more_vram, more_commit, more_quota = more
    larger = _machine(
        ram + more_ram,
        vram + more_vram,
        None if commit is None else commit + more_commit,
        None if quota is None else quota + more_quota,
    )
    large = _try(shape, larger, wishes)
    if isinstance(small, MemoryPlan):
        assert isinstance(large, MemoryPlan)
        assert _goodness(large) >= _goodness(small)


def _machine(ram: int, vram: int, commit: int | None, quota: int | None) -> HardwareFacts:
    more: dict[str, Any] = {} if commit is None else {"commit_limit": commit}
    if quota is not None:
        more["pin_measured"] = measured(quota)
    return machine(ram, gpu(vram), **more)


def _goodness(plan: MemoryPlan) -> tuple[int, int, int]:
    """Layers in VRAM; those and the pinned ones; those that stay in RAM."""
    vram, pinned = plan.layers_in(Tier.VRAM), plan.layers_in(Tier.PINNED)
    return vram, vram + pinned, len(plan.tiers) - plan.layers_in(Tier.PAGEABLE)


@CASES
@given(uneven_shapes(), machines(), fixed_wishes(), left_over)
def test_each_change_that_a_refusal_offers_is_enough_on_its_own(
    shape: ModelShape, facts: HardwareFacts, wishes: Wishes, held: list[Held]
) -> None:
    refused = _try(shape, facts, wishes, held)
    assume(isinstance(refused, NotEnoughMemoryError))
    assert isinstance(refused, NotEnoughMemoryError)
    assert refused.short_bytes is not None
    assert refused.short_bytes > 0
    assert refused.problem.fixes == refused.fixes
    assert not refused.fixes or refused.fix == refused.fixes[0].sentence
    changes = [fix.change for fix in refused.fixes]
    assert len(changes) == len(set(changes)), "one of each kind"
    for fix in refused.fixes:
        assert isinstance(_after(fix, shape, facts, wishes, held), MemoryPlan), fix


def _after(
    fix: FixOption, shape: ModelShape, facts: HardwareFacts, wishes: Wishes, held: list[Held]
) -> MemoryPlan | SplitpinError:
    """What becomes of the same wish once somebody has followed the fix."""
    number = next(iter(fix.numbers.values()))
    match fix.change:
        case "context_tokens" | "vram_layers" | "pinned_layers" | "vram_reserve_bytes" | "ram_reserve_bytes":
            return _try(shape, facts, wishes.model_copy(update={fix.change: number}))
        case "kv_dtype":
            return _try(shape, facts, wishes.model_copy(update={"kv_dtype": number}))
        case "allow_pageable":
            return _try(shape, facts, wishes.model_copy(update={"allow_pageable": True}))
        case "end_process":
            ended = [one for one in held if one.pid in fix.numbers.values()]
            return _try(shape, facts_without(facts, ended), wishes)
        case "free_ram" | "free_vram" | "free_commit":
            return _try(shape, _with_less_use(facts, fix), wishes)
        case "two_changes":
            fields = {name: value for name, value in fix.numbers.items() if name in Wishes.model_fields}
            assert fields
            return _try(shape, _with_less_use(facts, fix), wishes.model_copy(update=fields))
        case "close_programs":
            card = facts.cuda_gpu
            gpus = () if card is None else (card.model_copy(update={"vram_used": _read(0)}),)
            used = (facts.ram_total.value or 0) - (facts.ram_available.value or 0)
            promised = {} if facts.commit_used.value is None else {"commit_used": _less(facts.commit_used, used)}
            idle = {"ram_available": facts.ram_total, "gpus": gpus, **promised}
            return _try(shape, facts.model_copy(update=idle), wishes)
        case "page_file":
            assert facts.commit_limit.value is not None and isinstance(number, int)
            grown = _read(facts.commit_limit.value + number)
            return _try(shape, facts.model_copy(update={"commit_limit": grown}), wishes)
        case "expert_format":
            smaller = {"expert_format": WeightFormat(str(fix.numbers["expert_format"])), "storages": ()}
            return _try(shape.model_copy(update=smaller), facts, wishes)
    raise AssertionError(f"nobody knows how to follow {fix}")


def _with_less_use(facts: HardwareFacts, fix: FixOption) -> HardwareFacts:
    """Programs that were closed give back their RAM, and with it what they were promised."""
    changed: dict[str, Any] = {}
    if "ram_available_bytes" in fix.numbers:
        changed["ram_available"] = free = _read(fix.numbers["ram_available_bytes"])
        assert facts.ram_available.value is not None and free.value is not None
        if facts.commit_used.value is not None:
            changed["commit_used"] = _less(facts.commit_used, free.value - facts.ram_available.value)
    if "commit_used_bytes" in fix.numbers:
        changed["commit_used"] = now = _read(fix.numbers["commit_used_bytes"])
        assert facts.commit_used.value is not None and now.value is not None
        if facts.ram_available.value is not None and facts.ram_total.value is not None:
            more = facts.ram_available.value + facts.commit_used.value - now.value
            changed["ram_available"] = _read(min(more, facts.ram_total.value))
    if "vram_used_bytes" in fix.numbers:
        card = facts.cuda_gpu
        assert card is not None
        freed: GpuFacts = card.model_copy(update={"vram_used": _read(fix.numbers["vram_used_bytes"])})
        changed["gpus"] = (freed,)
    return facts.model_copy(update=changed)


def _less(reading: Reading, amount: int) -> Reading:
    assert reading.value is not None
    return _read(max(0, reading.value - amount))


def _read(value: object) -> Reading:
    assert isinstance(value, int)
    return Reading(value=value, source=Source.READ)
