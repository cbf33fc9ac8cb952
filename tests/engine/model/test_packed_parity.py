"""Packed experts stay packed in the banks, and answer like the stock model with the weights they stand for."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from engine.contract.estimate import banks, expert_record
from engine.contract.formats import WeightFormat
from tests.engine.model.conftest import Load
from tests.support import packed_weights as pack
from tests.support.native import alike, native_name, torch_alone
from tests.support.packed_cases import CASES, packed_case
from tests.support.packed_models import EXPERTS, LAYERS, PackedModel, packed_model
from tests.support.reference import greedy, prefill, random_prompt, stock_greedy, stock_logits
from tests.support.tiny_models import plan_for

PROMPT = random_prompt(19)
WHOLE_SCALES = {
    "fp8 whole": 4,
    "nvfp4 modelopt": 4,
    "nvfp4 compressed-tensors": 4,
}  # bytes of a scale that holds for a whole matrix
NOT_NATIVE = {"gptq 3 bits", "gptq 2 bits"}  # no decoder in engine/native
Model = Callable[[str], PackedModel]


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Checkpoints by the name of the case, written once."""

    @cache
    def make(name: str) -> PackedModel:
        return packed_case(name, Path(tmp_path_factory.mktemp("packed")))

    return make


@pytest.mark.parametrize("name", list(CASES))
def test_every_tier_answers_like_the_stock_model_with_the_unpacked_weights(
    name: str, model_of: Model, load: Load
) -> None:
    made, expected = model_of(name), CASES[name][1]
    shape = made.packed.shape
    assert shape.expert_format is expected
    assert shape.not_runnable is None
    want, tokens = stock_logits(made.plain, PROMPT)[-1], stock_greedy(made.plain, PROMPT, 6)
    answers = []
    for tiers in ("vp", "lg"):
        plan = plan_for(made.packed, tiers, expert_slots=1)
        model = load(plan)
        report = model.residency()
        assert report.ledger_settled == report.ledger_asked == plan.ledger
        assert [layer.settled for layer in report.layers] == list(plan.tiers)
        kernel = native_name() if tiers == "lg" and name not in NOT_NATIVE else "reference"
        assert report.kernels[expected.value] == kernel
        assert report.self_test.startswith("Same as the checkpoint")
        slow = f"Experts stored as {expected.value} are computed by the reference, which is slow."
        assert report.self_test.endswith(slow) is (kernel == "reference")
        answers.append(prefill(model, PROMPT))
        model.reset()
        assert greedy(model, PROMPT, 6) == tokens
    alike(answers)
    torch.testing.assert_close(answers[0], want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt-oss", "fp8 blocks", "nvfp4 modelopt", "gptq"])
def test_where_torch_computes_alone_every_split_gives_the_same_bits(name: str, model_of: Model, load: Load) -> None:
    made = model_of(name)
    splits = [("vv", 1), ("pp", 1), ("pp", 2), ("pp", 40), ("ll", 1), ("gv", 3)]
    with torch_alone():
        answers = [prefill(load(plan_for(made.packed, tiers, expert_slots=slots)), PROMPT) for tiers, slots in splits]
    assert all(torch.equal(answer, answers[0]) for answer in answers)


@pytest.mark.parametrize("name", list(CASES))
def test_banks_take_the_bytes_of_the_files(name: str, model_of: Model) -> None:
    """And the other weights what they take once they are unpacked."""
    made = model_of(name)
    shape = made.packed.shape
    record = expert_record(shape.experts, shape.layer_storages[0])
    plain = expert_record(shape.experts, WeightFormat.FP32)
    assert banks(shape)[0] < EXPERTS * (record.bytes + 4096) < EXPERTS * plain.bytes / 2
    scales_beside = WHOLE_SCALES.get(name, 0) * EXPERTS * LAYERS * 3  # one for each matrix
    assert shape.dense_bytes == made.plain.shape.dense_bytes + scales_beside


def test_fp16_experts_are_computed_in_torch(tmp_path: Path, load: Load) -> None:
    made = packed_model(tmp_path, "mixtral", None, None, dtype=torch.float16)
    assert made.packed.shape.expert_format is WeightFormat.FP16
    want = stock_logits(made.plain, PROMPT, torch.float16)[-1]
    models = [load(plan_for(made.packed, tiers)) for tiers in ("vv", "pp", "lg")]
    answers = [prefill(model, PROMPT) for model in models]
    assert all(torch.equal(answer, answers[0]) for answer in answers)
    assert (answers[0] - want).abs().max() < 0.01 * want.abs().max()
    assert models[0].residency().kernels == {"fp16": "torch"}


def test_layers_may_be_packed_differently_and_share_the_slots(tmp_path: Path, load: Load) -> None:
    made = packed_model(tmp_path, "qwen3_moe", None, pack.mxfp4, plain_from_layer=1)
    assert made.packed.shape.stored_as == "mxfp4 and fp32"
    want = stock_logits(made.plain, PROMPT)[-1]
    for tiers, slots in [("pp", 1), ("pp", 3), ("lv", 1)]:
        model = load(plan_for(made.packed, tiers, expert_slots=slots))
        torch.testing.assert_close(prefill(model, PROMPT), want, rtol=0, atol=1e-5)
        kernel = native_name() if tiers[0] == "l" else "reference"
        assert model.residency().kernels == {"mxfp4": kernel, "fp32": "torch"}
