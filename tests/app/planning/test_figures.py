"""Sums of figures: seconds of tokens and prompts by hand, on recorded machines and for every way a layer is computed.

The figures are made up; what is computed from them is not. Qwen3-30B-A3B: 48 layers of 128 experts with 9,437,184 B and
9,437,184 operations a row each, 8 of them active; 3,082,186,752 B that every token uses.
"""

from pathlib import Path
from typing import Any

import pytest

from app.planning.figures import Figures, attention_operations, needed_formats, not_measured
from app.planning.planner import make_plan
from app.planning.wishes import Wishes
from engine.contract.estimate import bank_bytes
from engine.contract.formats import WeightFormat
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.rates import KERNELS, KernelRates
from engine.contract.shape import KvShape, ModelShape, StateShape
from engine.contract.steps import Step, on_host
from engine.contract.units import GIB
from engine.system.recorded import RecordedMachine
from tests.support.figures import CPU, EVEN, RATES, WITH_GPU
from tests.support.machines import gib_bytes, gpu, machine, measured
from tests.support.model_configs import QWEN3_30B, shape_of

MACHINES = Path(__file__).parents[2] / "machines"
RECORD = 9_437_184
HOST_ONE = RECORD / 4e10 + 2e-5  # 256 µs: reading, then calling
HOST_MANY = RECORD / 4e10 + 1e-4  # the same as one of many in a prompt
HOST_ROW = (48 * RECORD / 1e11 - RECORD / 4e10) / 47  # 91 µs
DEVICE_ONE = 2e-5  # reading takes 12 µs, calling longer
DEVICE_MANY = 4e-5
DEVICE_ROW = (390 * RECORD / 8e13 - RECORD / 8e11) / 389  # 0.088 µs
COPY, STAGE = RECORD / 2.5e10 + 1e-5, RECORD / 1.5e10  # 387 and 629 µs
EMBEDDING = 151_936 * 2048 * 2
CALLS = 48 * 2e-5  # of as many experts as there are layers


def _plan(folder: Path, name: str = "desktop_63gb_rtx4090", **wishes: Any) -> MemoryPlan:
    facts = RecordedMachine(MACHINES / f"{name}.json").read()
    wished = Wishes(**{"context_tokens": 8192, **wishes})
    return make_plan(shape_of(QWEN3_30B, folder), facts, wished, model_dir="x")


def _chunk_beside_experts(tokens: int, seen: int) -> float:
    """Dense weights, embedding and attention of a chunk on that GPU."""
    dense = 3_082_186_752 - EMBEDDING
    one, many = dense / 8e11, 390 * dense / 8e13
    row = (many - one) / 389
    attention = 48 * 2 * tokens * seen * 32 * (128 + 128) / 4e13
    return one + (tokens - 1) * row + EMBEDDING / 8e11 + attention


def test_a_prompt_passes_the_ring_for_pinned_and_for_locked_layers(tmp_path: Path) -> None:
    plan = _plan(tmp_path, vram_layers=12)
    assert [plan.layers_in(tier) for tier in Tier] == [12, 22, 14, 0]
    assert (plan.ring_staged, plan.prefill_chunk, plan.expert_slots) == (True, 512, 471)
    compute = 128 * (DEVICE_MANY - DEVICE_ROW) + 4096 * DEVICE_ROW  # 5.5 ms a layer in VRAM
    pinned = COPY + 127 * COPY  # 50 ms: copying takes longer than computing
    locked = COPY + STAGE + 127 * STAGE  # 81 ms: staging takes longer still; the CPU would need 405
    experts = 12 * compute + 22 * pinned + 14 * locked
    beside = _chunk_beside_experts(512, 512) + _chunk_beside_experts(512, 1024)
    figures = Figures(plan, WITH_GPU)
    assert figures.prompt_s(1024, slowest=True) == pytest.approx(2 * (experts + 40 * CALLS) + beside, rel=1e-6)
    slots = 1 - 471 / (22 * 128)  # as many experts need not come; the first of the others is waited for
    experts -= 22 * (pinned - COPY - (128 * slots - 1) * COPY)
    assert figures.prompt_s(1024, slowest=False) == pytest.approx(2 * (experts + 10 * CALLS) + beside, rel=1e-6)


def test_prompts_of_locked_layers_stay_on_the_cpu_where_the_ring_has_no_pinned_side(tmp_path: Path) -> None:
    plan = _plan(tmp_path, vram_layers=12).model_copy(update={"ring_staged": False})
    compute, pinned = 128 * (DEVICE_MANY - DEVICE_ROW) + 4096 * DEVICE_ROW, 128 * COPY
    locked = 128 * (HOST_MANY - HOST_ROW) + 4096 * HOST_ROW  # 405 ms
    want = 12 * compute + 22 * pinned + 14 * locked + 40 * CALLS + _chunk_beside_experts(512, 512)
    assert Figures(plan, WITH_GPU).prompt_s(512, slowest=True) == pytest.approx(want, rel=1e-6)


def test_a_token_of_pinned_layers_is_copied_or_computed_by_the_cpu_whatever_is_faster(tmp_path: Path) -> None:
    plan, figures = _plan(tmp_path, vram_layers=12), Figures(_plan(tmp_path, vram_layers=12), WITH_GPU)
    held = 471 / (22 * 128)  # 0.17 of the experts, or 0.41 of the choices if some are favoured
    host = 8 * HOST_ONE  # 2.05 ms; without favourites the GPU would wait 2.58 ms for its copies, a quarter more
    assert host * 1.25 < 8 * (1 - held) * COPY
    attention = 48 * 2 * plan.context_tokens * 32 * (128 + 128)
    want = 12 * 8 * DEVICE_ONE + (22 + 14) * host + 3_082_186_752 / 8e11 + attention / 4e11 + 40 * CALLS
    assert figures.token_s(slowest=True) == pytest.approx(want, rel=1e-6)
    pinned = 8 * (1 - held**0.5) * COPY  # 1.83 ms: the GPU is faster, or as good
    want = 12 * 8 * DEVICE_ONE + 22 * pinned + 14 * host + (3_082_186_752 - EMBEDDING) / 8e11 + 10 * CALLS
    assert figures.token_s(slowest=False) == pytest.approx(want, rel=1e-6)


def test_on_the_larger_machine_nothing_is_locked_and_nothing_staged(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "desktop_192gb_rtx5090", vram_layers=12)
    assert [plan.layers_in(tier) for tier in Tier] == [12, 36, 0, 0]
    compute = 128 * (DEVICE_MANY - DEVICE_ROW) + 4096 * DEVICE_ROW
    want = 12 * compute + 36 * 128 * COPY + 40 * CALLS + _chunk_beside_experts(512, 512)
    assert Figures(plan, WITH_GPU).prompt_s(512, slowest=True) == pytest.approx(want, rel=1e-6)


def test_short_prompts_choose_fewer_experts(tmp_path: Path) -> None:
    plan = _plan(tmp_path, vram_layers=12)
    chosen = 128 * (1 - (120 / 128) ** 4)  # 29 of 128 by 4 tokens
    figures = Figures(plan, WITH_GPU)
    locked = chosen * (HOST_MANY - HOST_ROW) + 32 * HOST_ROW
    assert chosen * COPY < locked * 1.25 < chosen * STAGE, "for so few rows the CPU is faster than staging"
    compute = chosen * (DEVICE_MANY - DEVICE_ROW) + 32 * DEVICE_ROW
    want = 12 * compute + 22 * chosen * COPY + 14 * locked + 40 * CALLS + _chunk_beside_experts(4, 4)
    assert figures.prompt_s(4, slowest=True) == pytest.approx(want, rel=1e-6)


FREE_CALLS = RATES.model_copy(update={"call_s": 1e-12, "prompt_call_s": 1e-12})
ACTIVE = 8 * 8 * 3 * 1024 * 1024 * 2  # bytes of all layers


def _cpu_plan(shape: ModelShape = EVEN, **wishes: Any) -> MemoryPlan:
    return make_plan(shape, machine(gib_bytes(64)), Wishes(**{"context_tokens": 256, **wishes}), model_dir="x")


def test_on_a_cpu_a_token_takes_as_long_as_its_weights_are_read() -> None:
    figures = Figures(_cpu_plan(), FREE_CALLS)
    attention = 8 * 2 * 256 * 4 * (128 + 128)
    assert figures.token_s(slowest=True) == pytest.approx((ACTIVE + 100_000_000) / 4e10 + attention / 5e9, rel=1e-6)
    assert figures.token_s(slowest=False) == pytest.approx((ACTIVE + 100_000_000 - 1024 * 1024 * 2) / 4e10, rel=1e-6)


def test_keys_and_values_in_fp8_are_unpacked_for_every_token() -> None:
    plain, fp8 = _cpu_plan(), _cpu_plan(kv_dtype="fp8")
    unpacked = 256 * 8 * 4 * 256 * 2
    more = Figures(fp8, FREE_CALLS).token_s(slowest=True) - Figures(plain, FREE_CALLS).token_s(slowest=True)
    assert more == pytest.approx(2 * unpacked / 4e10, rel=1e-6), "written, and read again"


def test_calls_count_where_weights_are_small() -> None:
    figures = Figures(_cpu_plan(), RATES.model_copy(update={"call_s": 1e-3}))
    assert figures.token_s(slowest=False) > 8 * (10 + 8) * 1e-3
    assert figures.token_s(slowest=True) > 8 * (40 + 8) * 1e-3


def test_a_prompt_of_as_many_rows_as_were_measured_takes_the_operations_that_were_measured() -> None:
    shape = EVEN.model_copy(update={"dense_bytes": 1024 * 1024 * 2, "layers": (EVEN.layers[0],)})
    figures = Figures(_cpu_plan(shape), FREE_CALLS)
    tokens = 48 * 32 // 8  # 48 rows an expert
    attention = 2 * tokens * tokens * 4 * 256
    want = 32 * 48 * 2 * 3 * 1024 * 1024 / 1e11 + 1024 * 1024 * 2 / 4e10 + attention / 5e10
    assert figures.prompt_s(tokens, slowest=True) == pytest.approx(want, rel=1e-6)


def test_a_model_that_resumes_token_by_token_reads_the_rest_of_a_prompt_as_it_answers() -> None:
    once = StateShape(tensors=(), resumes=False)
    layers = (*EVEN.layers[:-1], EVEN.layers[-1].model_copy(update={"state": once}))
    plan = _cpu_plan(EVEN.model_copy(update={"layers": layers}), prefill_chunk=64)
    figures = Figures(plan, RATES)
    beyond = figures.prompt_s(200, slowest=True) - figures.prompt_s(64, slowest=True)
    assert beyond == pytest.approx(136 * figures.token_s(slowest=True))


def test_the_cpu_computes_packed_pinned_layers_only_where_it_has_room_to_unpack() -> None:
    nvfp4 = EVEN.model_copy(update={"expert_format": WeightFormat.NVFP4})
    card = machine(gib_bytes(64), gpu(gib_bytes(12)), pin_measured=measured(8 * GIB))
    plan = make_plan(nvfp4, card, Wishes(context_tokens=256, vram_layers=0, pinned_layers=4), model_dir="x")
    assert plan.layers_in(Tier.PINNED) == plan.layers_in(Tier.LOCKED) == 4
    assert plan.ring_staged
    packed, plain = KernelRates(bytes_s=4e10, flops_s=1e12, rows=48), WITH_GPU.gpu[WeightFormat.BF16]
    slow_bus = {"pinned_copy_bytes_s": 1e8, "gpu": {WeightFormat.BF16: plain, WeightFormat.NVFP4: packed}}
    rates = WITH_GPU.model_copy(update={"cpu": {**CPU, WeightFormat.NVFP4: packed}, **slow_bus})
    pinned_only = plan.model_copy(update={"tiers": (Tier.PINNED,) * 8})
    with_room, without = Figures(plan, rates), Figures(pinned_only, rates)
    assert without.token_s(slowest=True) > 3 * with_room.token_s(slowest=True)


def test_packed_experts_are_as_fast_as_their_own_format_was_measured() -> None:
    nvfp4 = EVEN.model_copy(update={"expert_format": WeightFormat.NVFP4})
    packed = KernelRates(bytes_s=1e8, flops_s=1e10, rows=48)
    rates = FREE_CALLS.model_copy(update={"cpu": {**CPU, WeightFormat.NVFP4: packed}})
    active = 8 * bank_bytes(nvfp4.experts, WeightFormat.NVFP4) // 4
    want = active / 1e8 + (1e8 - 1024 * 1024 * 2) / 4e10
    assert Figures(_cpu_plan(nvfp4), rates).token_s(slowest=False) == pytest.approx(want, rel=1e-6)


def test_weights_that_were_not_measured_have_no_figures(tmp_path: Path) -> None:
    nvfp4 = EVEN.model_copy(update={"expert_format": WeightFormat.NVFP4})
    assert Figures.of(_cpu_plan(nvfp4), RATES) is None
    assert not_measured(_cpu_plan(nvfp4), RATES) == (WeightFormat.NVFP4,)
    assert not_measured(_cpu_plan(nvfp4), None) == needed_formats(nvfp4) == (WeightFormat.BF16, WeightFormat.NVFP4)
    on_gpu = _plan(tmp_path)
    assert Figures.of(on_gpu, RATES) is None, "a GPU was never measured"
    assert not_measured(on_gpu, RATES) == (WeightFormat.BF16,)
    old = RATES.model_copy(update={"kernels": KERNELS - 1})
    assert Figures.of(_cpu_plan(), old) is None
    assert not_measured(_cpu_plan(), old) == (WeightFormat.BF16,)


def test_the_launcher_and_the_engine_choose_alike(tmp_path: Path) -> None:
    """What decides in a prediction is the function that decides in the engine, so a faster bus moves both."""
    plan = _plan(tmp_path, vram_layers=12)
    (rates,) = {layers.prompt for layers in Figures(plan, WITH_GPU)._layers}
    assert not on_host(Step(128, 4096, 128, RECORD, staged=True), rates)
    assert on_host(Step(8, 8, 8, RECORD, staged=True), rates)


@pytest.mark.parametrize(
    ("kv", "per_pair", "within"),
    [
        (KvShape(n_kv_heads=4, key_dim=128, value_dim=64, n_heads=32), 32 * 192, 1000),
        (KvShape(n_kv_heads=4, key_dim=128, value_dim=64), 4 * 192, 1000),
        (KvShape(n_kv_heads=4, key_dim=128, value_dim=128, n_heads=8, window=300), 8 * 256, 310),
        (KvShape(n_kv_heads=1, key_dim=128, value_dim=0, n_heads=8, keys_are_values=True), 8 * 256, 1000),
        (KvShape(n_kv_heads=1, key_dim=512, value_dim=64, n_heads=16, expanded_values=16 * 320), 16 * 320, 1000),
    ],
    ids=["grouped", "one query a head", "window", "keys are values", "latent"],
)
def test_attention_multiplies_every_token_with_all_that_it_may_see(kv: KvShape, per_pair: int, within: int) -> None:
    assert attention_operations(kv, 10, 1000) == 2 * 10 * within * per_pair
