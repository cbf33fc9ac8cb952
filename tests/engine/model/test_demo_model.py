"""The demo model answers, with the same tokens in every split."""

from pathlib import Path

import pytest

from engine.contract.checkpoint import read_shape
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.units import MIB
from engine.model.loaded import LoadedModel
from tests.engine.model.conftest import Load
from tests.support.reference import prefill
from tests.support.tiny_models import TinyModel, plan_for

pytestmark = pytest.mark.slow
QUESTION = "What is the capital of France?"
GPU = SimulatedGpu(vram_bytes=800 * MIB, pin_bytes=300 * MIB)


def _answer(model: LoadedModel, most_tokens: int = 40) -> list[int]:
    prompt = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"]
    logits, out = prefill(model, prompt), list[int]()
    while len(out) < most_tokens and not (out and out[-1] in model.stop_token_ids):
        out.append(int(logits.argmax()))
        logits = model.decode(out[-1])
    return out


def test_the_capital_of_france_is_paris_in_every_split(demo_model: Path, load: Load) -> None:
    model_on_disk = TinyModel(demo_model, read_shape(demo_model))
    n_layers = len(model_on_disk.shape.moe_layers)
    on_cpu = load(plan_for(model_on_disk, "l" * n_layers, context_tokens=256))
    answer = _answer(on_cpu)
    assert "Paris" in on_cpu.tokenizer.decode(answer)
    on_cpu.close()

    split = "v" * 8 + "p" * 7 + "l" * (n_layers - 15)
    on_gpu = load(plan_for(model_on_disk, split, context_tokens=256, expert_slots=24, simulated=GPU))
    assert on_gpu.residency().fallen == ()
    assert [on_gpu.residency().settled_count(tier) for tier in Tier] == [8, 7, n_layers - 15, 0]
    assert _answer(on_gpu) == answer
    on_gpu.close()

    refusing = GPU.model_copy(update={"refuse_pin_after_layers": 4})
    refused = load(plan_for(model_on_disk, split, context_tokens=256, expert_slots=24, simulated=refusing))
    assert [layer.layer for layer in refused.residency().fallen] == [12, 13, 14]
    assert _answer(refused) == answer
