"""What holds for every model on every machine: a plan fits or says why not, and no control works backwards."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.planning.planner import make_plan
from app.planning.stops import Stop, slider_stops
from app.planning.wishes import Wishes
from engine.contract.errors import NotEnoughMemoryError, SplitpinError
from engine.contract.estimate import bank_bytes
from engine.contract.facts import HardwareFacts
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape
from engine.contract.units import GIB, MIB
from tests.support.machines import gpu, machine, measured


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    n_experts = draw(st.sampled_from([2, 8, 64, 128]))
    width, inner = draw(st.sampled_from([256, 1024, 4096])), draw(st.sampled_from([128, 704, 2048]))
    kinds = draw(st.lists(st.booleans(), min_size=4, max_size=24).filter(any))
    window = draw(st.none() | st.sampled_from([128, 4096]))
    layers = []
    for index, moe in enumerate(kinds):
        kv = KvShape(n_kv_heads=4, key_dim=128, value_dim=128, window=window if index % 2 else None, n_heads=16)
        layers.append(LayerShape(index=index, kv=kv, moe=moe))
    return ModelShape(
        name="drawn",
        family="mixtral",
        hidden_size=width,
        vocab_size=32000,
        max_context_tokens=draw(st.sampled_from([1000, 4096, 40_960, 262_144])),
        layers=tuple(layers),
        experts=ExpertShape(n_experts=n_experts, top_k=min(n_experts, 8), width=width, inner=inner),
        expert_format=draw(st.sampled_from([WeightFormat.BF16, WeightFormat.NVFP4])),
        dense_format=WeightFormat.BF16,
        dense_bytes=draw(st.integers(0, 4 * GIB)),
        source="config",
    )


@st.composite
def machines(draw: st.DrawFn) -> HardwareFacts:
    ram = draw(st.integers(4 * GIB, 192 * GIB))
    more: dict[str, Any] = {"ram_available": draw(st.integers(ram // 2, ram))}
    if draw(st.booleans()):
        more |= {"commit_limit": draw(st.integers(4 * GIB, 256 * GIB)), "commit_used": 2 * GIB}
    if draw(st.booleans()):
        more["pin_measured"] = measured(draw(st.integers(0, ram)))
    if draw(st.booleans()):
        more |= {"memlock_limit": draw(st.integers(0, ram)), "os": "linux"}
    card = gpu(draw(st.integers(2 * GIB, 48 * GIB)), used=draw(st.integers(0, GIB))) if draw(st.booleans()) else None
    return machine(ram, card, **more)


@st.composite
def wish_lists(draw: st.DrawFn) -> Wishes:
    simulated = SimulatedGpu(vram_bytes=draw(st.integers(MIB, 24 * GIB)), pin_bytes=draw(st.integers(0, 16 * GIB)))
    return Wishes(
        context_tokens=draw(st.none() | st.integers(1, 300_000)),
        vram_layers=draw(st.sampled_from([None, None, None, 0, 2, 9])),
        pinned_layers=draw(st.sampled_from([None, None, 0, 3, 12])),
        forced=draw(st.just({}) | st.dictionaries(st.integers(0, 5), st.sampled_from(Tier), max_size=3)),
        pin_cap_bytes=draw(st.none() | st.integers(0, 64 * GIB)),
        allow_pageable=draw(st.booleans()),
        prefill_chunk=draw(st.sampled_from([64, 512, 4096])),
        simulated_gpu=draw(st.none() | st.just(simulated)),
    )


def _try(shape: ModelShape, facts: HardwareFacts, wishes: Wishes) -> MemoryPlan | SplitpinError:
    try:
        return make_plan(shape, facts, wishes, model_dir="/models/drawn")
    except SplitpinError as error:
        return error


@given(shapes(), machines(), wish_lists())
def test_a_plan_fits_every_pool_or_says_what_is_short(shape: ModelShape, facts: HardwareFacts, wishes: Wishes) -> None:
    match _try(shape, facts, wishes):
        case MemoryPlan() as plan:
            for pool in Pool:
                budget = plan.budgets[pool]
                assert budget is None or plan.pool_bytes(pool) <= budget
            assert len(plan.tiers) == len(shape.moe_layers)
            assert plan.context_tokens <= shape.max_context_tokens
            if wishes.context_tokens is not None:
                assert plan.context_tokens >= min(wishes.context_tokens, shape.max_context_tokens)
            pinned = plan.layers_in(Tier.PINNED)
            assert wishes.pinned_layers is None or pinned <= wishes.pinned_layers
            if pinned:
                floor = min(2 * shape.experts.top_k, shape.experts.n_experts)
                assert floor <= plan.expert_slots <= pinned * shape.experts.n_experts
            forced_pageable = list(wishes.forced.values()).count(Tier.PAGEABLE)
            assert wishes.allow_pageable or plan.layers_in(Tier.PAGEABLE) == forced_pageable
            placed = dict(zip(shape.moe_layers, plan.tiers, strict=True))
            assert all(placed[layer] is tier for layer, tier in wishes.forced.items())
        case NotEnoughMemoryError() as why:
            assert why.short_bytes is not None
            assert why.short_bytes > 0
            assert why.fix
        case SplitpinError() as why:
            assert why.kind == "usage"
            assert why.fix


@given(shapes(), machines(), wish_lists())
def test_a_fix_with_a_number_works(shape: ModelShape, facts: HardwareFacts, wishes: Wishes) -> None:
    refused = _try(shape, facts, wishes)
    if not isinstance(refused, NotEnoughMemoryError):
        return
    changes: dict[str, Any] = {
        key: refused.numbers[key]
        for key in ("context_tokens", "vram_layers", "pinned_layers")
        if key in refused.numbers
    }
    assert len(changes) <= 1, "the smallest change is a single one"
    if changes and refused.fixes[0].change != "two_changes":  # other programs must be closed too
        assert isinstance(_try(shape, facts, wishes.model_copy(update=changes)), MemoryPlan)


@given(shapes(), st.integers(3 * GIB, 40 * GIB), st.integers(0, 8 * GIB), wish_lists(), st.none() | st.just(0))
def test_more_vram_never_means_fewer_layers_in_it(
    shape: ModelShape, vram: int, more: int, wishes: Wishes, quota: int | None
) -> None:
    wishes = wishes.model_copy(
        update={"vram_reserve_bytes": GIB, "vram_layers": None, "simulated_gpu": None, "pin_cap_bytes": quota}
    )
    small = _try(shape, machine(400 * GIB, gpu(vram)), wishes)
    large = _try(shape, machine(400 * GIB, gpu(vram + more)), wishes)
    if isinstance(small, MemoryPlan):
        assert isinstance(large, MemoryPlan)
        assert large.layers_in(Tier.VRAM) >= small.layers_in(Tier.VRAM)


@given(shapes(), machines(), wish_lists())
def test_every_stop_plans_to_its_own_numbers_and_right_never_means_more_vram(
    shape: ModelShape, facts: HardwareFacts, wishes: Wishes
) -> None:
    try:
        found = slider_stops(shape, facts, wishes)
    except SplitpinError as error:
        assert error.kind == "usage"
        return
    quota = wishes.pin_cap_bytes
    bank = bank_bytes(shape.experts, shape.expert_format)
    before: Stop | None = None
    for stop in found.stops:
        asked = wishes.model_copy(update={"context_tokens": stop.context_tokens, "vram_layers": None})
        plan = make_plan(shape, facts, asked, model_dir="x")
        vram, pinned, locked, pageable = (plan.layers_in(tier) for tier in Tier)
        assert Stop(plan.context_tokens, vram, pinned, locked, pageable, plan.expert_slots) == stop
        assert vram + pinned + locked + pageable == len(shape.moe_layers)
        assert quota is None or pinned * bank <= quota
        if before is not None:
            assert stop.context_tokens > before.context_tokens
            assert stop.vram_layers <= before.vram_layers
            host, host_before = (s.pinned_layers + s.locked_layers + s.pageable_layers for s in (stop, before))
            assert host >= host_before
        before = stop


@given(shapes(), machines(), wish_lists())
def test_markers_stand_inside_the_slider_or_right_behind_it(
    shape: ModelShape, facts: HardwareFacts, wishes: Wishes
) -> None:
    try:
        found = slider_stops(shape, facts, wishes.model_copy(update={"pinned_layers": None}))
    except SplitpinError:
        return
    for marker in (found.pin_full, found.ram_full):
        assert marker is None or 0 <= marker.stop <= len(found.stops)
    if found.pin_full is not None:
        for index, stop in enumerate(found.stops):
            outside = len(shape.moe_layers) - stop.vram_layers
            assert (outside > found.pin_full.layers) == (index >= found.pin_full.stop)
