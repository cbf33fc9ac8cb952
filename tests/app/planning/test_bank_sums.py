"""Banks of different sizes: numbers of layers and their bytes are those of the layers that are really placed."""

from app.planning.bank_sums import BankSums
from app.planning.planner import make_plan
from app.planning.stops import slider_stops
from app.planning.wishes import Wishes
from engine.contract.estimate import banks
from engine.contract.formats import WeightFormat, alike, usual_storage
from engine.contract.plan import Pool, Tier
from engine.contract.shape import ExpertShape, KvShape, LayerShape, ModelShape
from engine.contract.units import GIB
from tests.support.machines import gib_bytes, gpu, machine, measured

KV = KvShape(n_kv_heads=8, key_dim=128, value_dim=128, n_heads=8)
LAYERS = 12
# Wide layers at the ends, as mixed GGUF files have them.
FORMATS = [WeightFormat.BF16] * 3 + [WeightFormat.NVFP4] * 6 + [WeightFormat.BF16] * 3
MIXED = ModelShape(
    name="mixed",
    family="mixtral",
    hidden_size=2048,
    vocab_size=32000,
    max_context_tokens=131_072,
    layers=tuple(LayerShape(index=index, kv=KV, moe=True) for index in range(LAYERS)),
    experts=ExpertShape(n_experts=64, top_k=8, width=2048, inner=1024),
    expert_format=WeightFormat.BF16,
    dense_format=WeightFormat.BF16,
    dense_bytes=GIB,
    source="headers",
    storages=tuple(alike(usual_storage(one)) for one in FORMATS),
)


def test_sums_follow_the_order_of_placement() -> None:
    sums = BankSums([1, 2, 3, 4], [100, 10, 1, 1000], {})
    assert [sums.outer(count) for count in range(5)] == [0, 100, 1100, 1110, 1111]
    assert [sums.inner(count) for count in range(5)] == [0, 1, 11, 1011, 1111]
    assert [sums.most_outer(limit) for limit in (-1, 0, 99, 100, 1105, 9999)] == [-1, 0, 0, 1, 2, 4]
    assert sums.most_inner(11) == 2
    assert [sums.least_after(1, least) for least in (1, 1000, 1001, 1011, 2000)] == [1, 1, 2, 3, 4]
    assert (sums.total, sums.largest, sums.free) == (1111, 1000, 4)


def test_forced_layers_are_counted_apart() -> None:
    sums = BankSums([1, 2, 3, 4], [100, 10, 1, 1000], {1: Tier.VRAM, 3: Tier.PINNED})
    assert (sums.forced[Tier.VRAM], sums.forced[Tier.PINNED], sums.forced[Tier.LOCKED]) == (100, 1, 0)
    assert (sums.forced_count[Tier.VRAM], sums.free) == (1, 2)
    assert sums.outer(2) == 1010


def test_a_plan_counts_each_bank_where_it_is() -> None:
    facts = machine(gib_bytes(64), gpu(gib_bytes(4)), pin_measured=measured(gib_bytes(1)))
    plan = make_plan(MIXED, facts, Wishes(context_tokens=4096), model_dir="x")
    sizes = banks(MIXED)
    assert len(set(sizes)) == 2
    for tier, pool in ((Tier.PINNED, Pool.PINNED), (Tier.LOCKED, Pool.LOCKED)):
        held = sum(size for size, placed in zip(sizes, plan.tiers, strict=True) if placed is tier)
        line = next(line for line in plan.ledger if line.pool is pool and line.what == f"{tier.value} layers")
        assert line.bytes == held > 0
    assert plan.layers_in(Tier.PINNED) == 4, "of the small ones in the middle"
    assert 4 * min(sizes) < plan.pool_bytes(Pool.PINNED) <= GIB < 5 * min(sizes), "with the transfer ring"


def test_every_stop_of_the_slider_plans_to_its_own_numbers() -> None:
    facts = machine(gib_bytes(64), gpu(gib_bytes(8)), pin_measured=measured(gib_bytes(3)))
    found = slider_stops(MIXED, facts, Wishes())
    assert len(found.stops) > 3
    for stop in found.stops:
        plan = make_plan(MIXED, facts, Wishes(context_tokens=stop.context_tokens), model_dir="x")
        assert [plan.layers_in(tier) for tier in Tier] == [
            stop.vram_layers,
            stop.pinned_layers,
            stop.locked_layers,
            stop.pageable_layers,
        ]
