"""The slider: one whole layer a step, nothing beyond a limit, limits where they are met."""

from pathlib import Path

import pytest

from app.planning.planner import make_plan
from app.planning.stops import Stop, slider_stops
from app.planning.wishes import Wishes
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.shape import ModelShape
from tests.support.machines import gib_bytes, gpu, machine, measured
from tests.support.model_configs import MINIMAX_M25, QWEN3_30B, shape_of


@pytest.fixture
def qwen(tmp_path: Path) -> ModelShape:
    return shape_of(QWEN3_30B, tmp_path)


@pytest.fixture
def minimax(tmp_path: Path) -> ModelShape:
    return shape_of(MINIMAX_M25, tmp_path)


def as_stop(plan: MemoryPlan) -> Stop:
    vram, pinned, locked, pageable = (plan.layers_in(tier) for tier in Tier)
    return Stop(plan.context_tokens, vram, pinned, locked, pageable, plan.expert_slots)


def test_each_stop_is_one_layer_and_plans_to_its_own_numbers(minimax: ModelShape) -> None:
    facts = machine(gib_bytes(192), gpu(gib_bytes(32)), pin_measured=measured(gib_bytes(94)))
    found = slider_stops(minimax, facts, Wishes())
    layers = [stop.vram_layers for stop in found.stops]
    assert layers == list(range(layers[0], -1, -1))
    for stop in found.stops:
        plan = make_plan(minimax, facts, Wishes(context_tokens=stop.context_tokens), model_dir="x")
        assert as_stop(plan) == stop
    lengths = [stop.context_tokens for stop in found.stops]
    assert lengths == sorted(set(lengths))
    assert lengths[0] >= 4096
    assert all(tokens % 256 == 0 for tokens in lengths)


def test_one_page_more_than_a_stop_costs_a_layer(minimax: ModelShape) -> None:
    facts = machine(gib_bytes(192), gpu(gib_bytes(32)), pin_measured=measured(gib_bytes(94)))
    for stop in slider_stops(minimax, facts, Wishes()).stops[:-1]:
        more = make_plan(minimax, facts, Wishes(context_tokens=stop.context_tokens + 256), model_dir="x")
        assert more.layers_in(Tier.VRAM) == stop.vram_layers - 1


def test_the_list_ends_at_the_models_full_context(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), gpu(gib_bytes(24)), pin_measured=measured(gib_bytes(60)))
    found = slider_stops(qwen, facts, Wishes())
    assert found.stops[-1].context_tokens == 40_960
    assert [stop.context_tokens for stop in found.stops].count(40_960) == 1


def test_a_model_with_a_short_maximum_keeps_its_only_stop(qwen: ModelShape) -> None:
    short = qwen.model_copy(update={"max_context_tokens": 2000})
    facts = machine(gib_bytes(96), gpu(gib_bytes(24)), pin_measured=measured(gib_bytes(60)))
    assert [stop.context_tokens for stop in slider_stops(short, facts, Wishes()).stops] == [2000]
    cpu = slider_stops(short, machine(gib_bytes(96)), Wishes())
    assert [stop.context_tokens for stop in cpu.stops] == [2000]


def test_the_wishes_the_slider_replaces_do_not_matter(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), gpu(gib_bytes(24)), pin_measured=measured(gib_bytes(60)))
    plain = slider_stops(qwen, facts, Wishes())
    assert slider_stops(qwen, facts, Wishes(context_tokens=256, vram_layers=1)) == plain


def test_the_pin_marker_stands_where_the_quota_is_exceeded(minimax: ModelShape) -> None:
    roomy = machine(gib_bytes(192), gpu(gib_bytes(32)), pin_measured=measured(gib_bytes(104)))
    found = slider_stops(minimax, roomy, Wishes())
    marker = found.pin_full
    assert marker is not None
    assert marker.layers == gib_bytes(104) // 2_038_431_744
    assert not marker.assumed
    assert found.stops[marker.stop].locked_layers > 0
    assert found.stops[marker.stop - 1].locked_layers == 0
    tight = machine(gib_bytes(192), gpu(gib_bytes(32)), pin_measured=measured(gib_bytes(50)))
    exceeded = slider_stops(minimax, tight, Wishes()).pin_full
    assert exceeded is not None
    assert exceeded.stop == 0


def test_the_pin_marker_is_dashed_while_the_quota_is_assumed(minimax: ModelShape) -> None:
    found = slider_stops(minimax, machine(gib_bytes(192), gpu(gib_bytes(32))), Wishes())
    assert found.pin_full is not None
    assert found.pin_full.assumed


def test_the_slider_ends_where_ram_is_full(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(44), gpu(gib_bytes(24)), pin_measured=measured(gib_bytes(20)))
    found = slider_stops(qwen, facts, Wishes())
    marker = found.ram_full
    assert marker is not None
    assert marker.limit == "ram"
    assert marker.stop == len(found.stops)
    last = found.stops[-1]
    assert last.pinned_layers + last.locked_layers <= marker.layers
    allowed = slider_stops(qwen, facts, Wishes(allow_pageable=True))
    assert len(allowed.stops) > len(found.stops)
    assert allowed.ram_full is not None
    assert allowed.ram_full.stop == marker.stop
    assert allowed.stops[marker.stop].pageable_layers == 1


def test_the_ram_marker_says_when_it_is_the_commit_limit(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(96), gpu(gib_bytes(24)), pin_measured=measured(gib_bytes(20)), commit_limit=gib_bytes(43))
    marker = slider_stops(qwen, facts, Wishes()).ram_full
    assert marker is not None
    assert marker.limit == "commit"


def test_without_a_gpu_about_a_dozen_contexts_are_offered(qwen: ModelShape) -> None:
    found = slider_stops(qwen, machine(gib_bytes(96)), Wishes())
    lengths = [stop.context_tokens for stop in found.stops]
    assert 8 <= len(lengths) <= 12
    assert lengths[0] == 4096
    assert lengths[-1] == 40_960
    assert lengths == sorted(set(lengths))
    assert found.pin_full is None
    assert all(stop.vram_layers == stop.pinned_layers == 0 for stop in found.stops)


def test_without_a_gpu_the_longest_stop_is_what_ram_holds(qwen: ModelShape) -> None:
    facts = machine(gib_bytes(67))
    found = slider_stops(qwen, facts, Wishes())
    last = found.stops[-1].context_tokens
    assert 4096 < last < 40_960
    assert make_plan(qwen, facts, Wishes(context_tokens=last), model_dir="x").context_tokens == last


def test_a_model_that_does_not_fit_has_no_stops(qwen: ModelShape) -> None:
    assert slider_stops(qwen, machine(gib_bytes(16)), Wishes()).stops == ()
    assert slider_stops(qwen, machine(gib_bytes(96), gpu(gib_bytes(3))), Wishes()).stops == ()
