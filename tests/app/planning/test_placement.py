"""Which layers go where: the ends of the model leave the pinned middle alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.planning.placement import place
from engine.contract.plan import Tier

V, P, L, G = Tier.VRAM, Tier.PINNED, Tier.LOCKED, Tier.PAGEABLE


def test_vram_takes_the_ends_and_pinned_layers_fill_the_middle() -> None:
    assert place(range(7), {V: 2, L: 1, P: 4}, {}) == (V, L, P, P, P, P, V)


def test_forced_layers_stay_where_they_are_forced() -> None:
    assert place([3, 5, 7, 9], {V: 1, P: 2, L: 1}, {7: V, 3: P}) == (P, L, V, P)


def test_one_layer_less_in_vram_leaves_all_other_layers_in_vram_where_they_are() -> None:
    for vram in range(1, 12):
        more = place(range(12), {V: vram, P: 12 - vram}, {})
        less = place(range(12), {V: vram - 1, P: 13 - vram}, {})
        assert sum(a != b for a, b in zip(more, less, strict=True)) == 1


@given(st.integers(1, 40).flatmap(lambda n: st.lists(st.sampled_from(Tier), min_size=n, max_size=n)))
def test_every_layer_gets_one_tier_and_the_counts_are_kept(tiers: list[Tier]) -> None:
    layers = list(range(3, 3 + len(tiers)))
    counts = {tier: tiers.count(tier) for tier in Tier}
    forced = dict(list(zip(layers, tiers, strict=True))[::3])
    placed = place(layers, counts, forced)
    assert {tier: placed.count(tier) for tier in Tier} == counts
    assert all(placed[layers.index(layer)] is tier for layer, tier in forced.items())


def test_counts_that_do_not_add_up_are_a_fault() -> None:
    with pytest.raises(ValueError, match="cannot be given"):
        place(range(3), {V: 1, P: 1}, {})
