"""Where a step is computed and which way weights take changes no token, and the ledger counts all of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.banks.bank import ExpertBank
from engine.banks.simulated_device import SimulatedDevice
from engine.contract.estimate import slot_bytes
from engine.contract.estimate_work import unpacked_bytes, unpacked_expert_bytes
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.contract.steps import ExpertRates, StepRates
from engine.experts.layer import ExpertLayer, ThroughSlots
from engine.model.build import Drivers
from engine.model.loaded import LoadedModel
from tests.engine.model.conftest import Load, Tiny
from tests.support import packed_weights as pack
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.native import alike
from tests.support.packed_models import packed_model
from tests.support.reference import greedy, prefill, random_prompt
from tests.support.tiny_models import plan_for

PROMPT = random_prompt(40)
ROOMY = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30)
SLOW, FAST = ExpertRates(1.0, 1.0), ExpertRates(1e-9, 1e-9)
CHOICES = {
    "not measured": None,
    "always on the CPU": StepRates(host=FAST, device=SLOW, copy_bytes_s=1e9, copy_s=1e-5, stage_bytes_s=1e9),
    "always on the GPU": StepRates(host=SLOW, device=FAST, copy_bytes_s=1e9, copy_s=1e-5, stage_bytes_s=1e9),
    "whole layers": StepRates(host=SLOW, device=FAST, copy_bytes_s=1e9, copy_s=1.0, stage_bytes_s=1e9),
}


def _choose(model: LoadedModel, rates: StepRates | None) -> None:
    parts = model._parts
    parts.use_rates({} if rates is None else dict.fromkeys(parts.plan.model.different_storages, rates))


def _answers(model: LoadedModel) -> torch.Tensor:
    model.reset()
    return torch.stack([prefill(model, PROMPT), *(model.decode(token) for token in (5, 6, 7))])


@pytest.mark.parametrize("family", ["mixtral", "gpt_oss"])
@pytest.mark.parametrize("ring_experts", [2, 5])
def test_logits_are_the_same_bit_for_bit_after_every_choice(
    family: str, ring_experts: int, tiny: Tiny, load: Load
) -> None:
    checkpoint = tiny(family)
    n_layers = len(checkpoint.shape.moe_layers)
    want = _answers(load(plan_for(checkpoint, "l" * n_layers, prefill_chunk=32)))
    for pattern in ("p", "l", "vplg"):
        tiers = (pattern * n_layers)[:n_layers]
        model = load(plan_for(checkpoint, tiers, simulated=ROOMY, ring_experts=ring_experts, prefill_chunk=32))
        for rates in CHOICES.values():
            _choose(model, rates)
            assert torch.equal(_answers(model), want)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, bool]]:
    """Layer, tokens and whether the CPU computed them, of every step."""
    seen: list[tuple[int, int, bool]] = []
    choose = ExpertLayer._choose

    def noted(self: ExpertLayer, ids: torch.Tensor) -> object:
        way = choose(self, ids)
        seen.append((self.bank.layer, ids.shape[0], way.on_host))
        return way

    monkeypatch.setattr(ExpertLayer, "_choose", noted)
    return seen


def test_a_long_prompt_of_locked_layers_goes_to_the_gpu_and_single_tokens_stay_on_the_cpu(
    tiny: Tiny, load: Load, computed: list[tuple[int, int, bool]]
) -> None:
    checkpoint = tiny("mixtral")
    experts = checkpoint.shape.experts
    tokens = 16 * experts.n_experts // experts.top_k
    plan = plan_for(checkpoint, "vplg", ring_experts=4, context_tokens=tokens + 8, prefill_chunk=tokens)
    model = load(plan)
    computed.clear()
    prefill(model, random_prompt(tokens))
    model.decode(5)
    prefill(model, random_prompt(3))
    assert computed == [
        *((layer, tokens, False) for layer in range(4)),
        *((layer, 1, layer > 1) for layer in range(4)),
        *((layer, 3, layer > 1) for layer in range(4)),
    ]


@pytest.mark.parametrize("tiers", ["vplg", "llll", "pppp", "vvvv"])
def test_the_ring_is_allocated_as_planned_and_given_back(tiers: str, tiny: Tiny, load: Load) -> None:
    device, memory, locker = SimulatedDevice(ROOMY), CountingAllocator(), RecordingLocker()
    checkpoint = tiny("mixtral")
    plan = plan_for(checkpoint, tiers, simulated=ROOMY, ring_experts=4)
    model = load(plan, drivers=Drivers(device, memory, locker))
    report = model.residency()
    assert report.ledger_settled == report.ledger_asked == plan.ledger
    lines = {(line.pool, line.what): line.bytes for line in report.ledger_settled}
    size = 4 * slot_bytes(checkpoint.shape)
    assert lines[Pool.VRAM, "transfer ring"] == size == device.allocated["transfer ring"]
    staged = tiers in ("vplg", "llll")
    for pool in (Pool.PINNED, Pool.RAM, Pool.COMMIT):
        assert lines.get((pool, "transfer ring"), 0) == (size if staged else 0)
    assert report.ring_cause is None
    model.close()
    assert (memory.live, locker.locked, device.pinning.layers, device.allocated) == (0, {}, 0, {})


def test_a_refused_ring_leaves_prompts_of_locked_layers_on_the_cpu_and_says_so(
    tiny: Tiny, load: Load, computed: list[tuple[int, int, bool]]
) -> None:
    checkpoint = tiny("mixtral")
    no_pins = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=0)
    plan = plan_for(checkpoint, "vllg", simulated=no_pins, ring_experts=4)
    model = load(plan)
    report = model.residency()
    assert "could not be pinned" in str(report.ring_cause)
    assert not any(line.what == "transfer ring" and line.pool is not Pool.VRAM for line in report.ledger_settled)
    assert report.fallen == ()
    computed.clear()
    assert greedy(model, PROMPT, 6) == greedy(load(plan_for(checkpoint, "llll")), PROMPT, 6)
    assert all(on_host for layer, _, on_host in computed if layer)


@pytest.mark.parametrize("tiers", ["vl", "pl", "vp", "ll"])
def test_the_room_in_which_the_cpu_unpacks_experts_is_a_line_of_the_ledger(
    tiers: str, tmp_path: Path, load: Load, packed_plan: Callable[[Path, str], MemoryPlan]
) -> None:
    plan = packed_plan(tmp_path, tiers)
    model = load(plan)
    lines = {(line.pool, line.what): line.bytes for line in model.residency().ledger_settled}
    unpacks = Tier.LOCKED in plan.tiers
    for pool in (Pool.RAM, Pool.COMMIT):
        assert lines.get((pool, "scratch"), 0) == (unpacked_bytes(plan.model) if unpacks else 0)
    assert model.residency().ledger_settled == plan.ledger
    assert model._parts._scratch.nbytes(torch.device("cpu")) == unpacked_expert_bytes(plan.model)
    want = _answers(load(packed_plan(tmp_path, "vv")))
    for rates in CHOICES.values():
        _choose(model, rates)
        alike([_answers(model), want])


@pytest.fixture(scope="module")
def packed_plan() -> Callable[[Path, str], MemoryPlan]:
    """Plans of one packed checkpoint, with a ring."""
    made: dict[Path, object] = {}

    def plan(folder: Path, tiers: str) -> MemoryPlan:
        if folder not in made:
            made[folder] = packed_model(folder, "qwen3_moe", {"quant_method": "compressed-tensors"}, pack.mxfp4).packed
        return plan_for(made[folder], tiers, simulated=ROOMY, ring_experts=2)  # type: ignore[arg-type]

    return plan


def test_without_a_ring_prompts_take_the_slots(tiny: Tiny, load: Load) -> None:
    checkpoint = tiny("mixtral")
    model = load(plan_for(checkpoint, "pppp", expert_slots=3))
    prefill(model, PROMPT)
    slots = model._parts.slots
    assert slots is not None
    assert slots.table.misses > 3
    assert slots.nbytes == 3 * slot_bytes(checkpoint.shape)


def test_a_single_token_asks_the_gpu_for_its_experts_only_where_that_can_matter(
    tiny: Tiny, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(plan_for(tiny("mixtral"), "pppp", expert_slots=32))
    asked: list[int] = []
    missing = ThroughSlots.missing

    def noted(self: ThroughSlots, bank: ExpertBank, experts: list[int]) -> int:
        asked.append(bank.layer)
        return missing(self, bank, experts)

    monkeypatch.setattr(ThroughSlots, "missing", noted)
    for name, times in (("not measured", 0), ("always on the GPU", 0), ("always on the CPU", 4)):
        _choose(model, CHOICES[name])
        model.decode(5)
        assert len(asked) == times
