"""Every split computes what transformers' own model computes."""

import pytest
import torch

from engine.banks.cpu_device import CpuDevice
from engine.contract.plan import SimulatedGpu, Tier
from engine.model.build import Drivers
from tests.engine.model.conftest import Load, Tiny
from tests.support.host_memory import CountingAllocator, RecordingLocker
from tests.support.reference import greedy, prefill, random_prompt, stock_greedy, stock_logits
from tests.support.tiny_models import MAKERS, layer_bytes, plan_for

PROMPT = random_prompt(23)
FAMILIES = list(MAKERS)


def _tiers(pattern: str, n_layers: int) -> str:
    return (pattern * n_layers)[:n_layers]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pattern", ["v", "p", "l", "g", "vplg", "glpv"])
def test_logits_and_greedy_tokens_are_those_of_the_stock_model(
    family: str, pattern: str, tiny: Tiny, load: Load
) -> None:
    checkpoint = tiny(family)
    model = load(plan_for(checkpoint, _tiers(pattern, len(checkpoint.shape.moe_layers)), expert_slots=3))
    torch.testing.assert_close(prefill(model, PROMPT), stock_logits(checkpoint, PROMPT)[-1], rtol=0, atol=1e-5)
    model.reset()
    assert greedy(model, PROMPT, 24) == stock_greedy(checkpoint, PROMPT, 24)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_same_bit_for_bit_in_every_split(family: str, tiny: Tiny, load: Load) -> None:
    checkpoint = tiny(family)
    answers = []
    for pattern, slots in [("l", 0), ("v", 1), ("p", 1), ("p", 2), ("p", 40), ("vplg", 3)]:
        model = load(plan_for(checkpoint, _tiers(pattern, len(checkpoint.shape.moe_layers)), expert_slots=slots or 1))
        answers.append(torch.stack([prefill(model, PROMPT), *(model.decode(token) for token in (5, 6, 7))]))
    assert all(torch.equal(answer, answers[0]) for answer in answers)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_refused_pins_change_the_residency_and_not_the_answer(after: int, tiny: Tiny, load: Load) -> None:
    checkpoint = tiny("mixtral")
    limits = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=1 << 30, refuse_pin_after_layers=after)
    model = load(plan_for(checkpoint, "pppp", simulated=limits))
    settled = [layer.settled for layer in model.residency().layers]
    assert settled == [Tier.PINNED] * after + [Tier.LOCKED] * (4 - after)
    assert [layer.layer for layer in model.residency().fallen] == list(range(after, 4))
    assert all("could not be pinned" in str(layer.cause) for layer in model.residency().fallen)
    assert greedy(model, PROMPT, 12) == stock_greedy(checkpoint, PROMPT, 12)


def test_t20_refused_locks_leave_pageable_layers_one_warning_and_the_same_answer(
    tiny: Tiny, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = tiny("mixtral")
    limits = SimulatedGpu(vram_bytes=1 << 30, pin_bytes=layer_bytes(checkpoint), refuse_lock_after_layers=0)
    model = load(plan_for(checkpoint, "vppp", simulated=limits))
    settled = [layer.settled for layer in model.residency().layers]
    assert settled == [Tier.VRAM, Tier.PINNED, Tier.PAGEABLE, Tier.PAGEABLE]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "layers [2, 3] are pageable: the system may write them to disk"
    ]
    assert greedy(model, PROMPT, 12) == stock_greedy(checkpoint, PROMPT, 12)


def test_bf16_checkpoints_answer_like_the_stock_model_within_their_rounding(
    tmp_path_factory: pytest.TempPathFactory, load: Load
) -> None:
    checkpoint = MAKERS["mixtral"](tmp_path_factory.mktemp("bf16") / "mixtral", torch.bfloat16)
    want = stock_logits(checkpoint, PROMPT, torch.bfloat16)[-1]
    got = [prefill(load(plan_for(checkpoint, tiers)), PROMPT) for tiers in ("vvvv", "pppp", "llll")]
    assert all(torch.equal(one, got[0]) for one in got)
    assert (got[0] - want).abs().max() < 0.05 * want.abs().max()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_experts_do_matter(family: str, tiny: Tiny, load: Load) -> None:
    """Negative control: without it the tests above could pass with experts that are never read."""
    checkpoint = tiny(family)
    memory = CountingAllocator()
    drivers = Drivers(CpuDevice(), memory, RecordingLocker())
    model = load(plan_for(checkpoint, _tiers("l", len(checkpoint.shape.moe_layers))), drivers=drivers)
    before = prefill(model, PROMPT)
    for block in memory.blocks:
        block.buffer[:] = bytes(block.nbytes)
    model.reset()
    assert (prefill(model, PROMPT) - before).abs().max() > 0.1
