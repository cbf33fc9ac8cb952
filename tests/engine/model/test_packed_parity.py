"""Packed experts stay packed in the banks, and answer like the stock model with the weights they stand for."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.estimate import banks, expert_record
from engine.contract.formats import WeightFormat
from tests.engine.model.conftest import Load
from tests.support import packed_weights as pack
from tests.support.packed_models import EXPERTS, LAYERS, PackedModel, packed_model
from tests.support.reference import greedy, prefill, random_prompt, stock_greedy, stock_logits
from tests.support.tiny_models import plan_for

PROMPT = random_prompt(19)
Case = tuple[str, dict[str, Any], dict[str, Any]]  # family, quantization_config, arguments of packed_model

CASES: dict[str, tuple[Case, WeightFormat]] = {
    "gpt-oss": (("gpt_oss", {"quant_method": "mxfp4"}, {"experts": None}), WeightFormat.MXFP4),
    "mxfp4": (
        ("qwen3_moe", {"quant_method": "compressed-tensors"}, {"experts": pack.mxfp4, "dense": pack.mxfp4}),
        WeightFormat.MXFP4,
    ),
    "fp8 blocks": (
        (
            "qwen3_moe",
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            {
                "experts": pack.fp8_blocks("weight_scale_inv", torch.float32),
                "dense": pack.fp8_blocks("weight_scale_inv", torch.float32),
            },
        ),
        WeightFormat.FP8_BLOCK,
    ),
    "fp8 blocks, bf16 scales": (
        (
            "mixtral",
            {"quant_method": "fp8"},
            {
                "experts": pack.fp8_blocks("weight_scale_inv", torch.bfloat16),
                "dense": pack.fp8_blocks("weight_scale_inv", torch.bfloat16),
            },
        ),
        WeightFormat.FP8_BLOCK,
    ),
    "fp8 blocks, exponents": (
        ("mixtral", {"quant_method": "fp8"}, {"experts": pack.fp8_blocks("scale", torch.float8_e8m0fnu)}),
        WeightFormat.FP8_BLOCK,
    ),
    "fp8 whole": (
        ("mixtral", {"quant_method": "modelopt"}, {"experts": pack.fp8_whole, "dense": pack.fp8_whole}),
        WeightFormat.FP8,
    ),
    "fp8 rows": (
        ("qwen3_moe", {"quant_method": "compressed-tensors"}, {"experts": pack.fp8_rows, "dense": pack.fp8_rows}),
        WeightFormat.FP8_CHANNEL,
    ),
    "mxfp8": (("mixtral", {"quant_method": "modelopt"}, {"experts": pack.mxfp8}), WeightFormat.MXFP8),
    "nvfp4 modelopt": (
        ("qwen3_moe", {"quant_method": "modelopt"}, {"experts": pack.nvfp4_modelopt, "dense": pack.nvfp4_modelopt}),
        WeightFormat.NVFP4,
    ),
    "nvfp4 compressed-tensors": (
        (
            "mixtral",
            {"quant_method": "compressed-tensors"},
            {"experts": pack.nvfp4_compressed, "dense": pack.nvfp4_compressed},
        ),
        WeightFormat.NVFP4,
    ),
    "gptq": (
        ("qwen3_moe", {"quant_method": "gptq", "bits": 4}, {"experts": pack.gptq(4, 64), "dense": pack.gptq(4, 64)}),
        WeightFormat.INT4,
    ),
    "gptq 8 bits, version 2, reordered": (
        (
            "mixtral",
            {"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq_v2"},
            {"experts": pack.gptq(8, 32, version=2, reordered=True)},
        ),
        WeightFormat.INT8,
    ),
    "gptq 3 bits": (("mixtral", {"quant_method": "gptq", "bits": 3}, {"experts": pack.gptq(3, 64)}), WeightFormat.INT3),
    "gptq 2 bits": (("mixtral", {"quant_method": "gptq", "bits": 2}, {"experts": pack.gptq(2, 64)}), WeightFormat.INT2),
    "awq": (
        ("qwen3_moe", {"quant_method": "awq", "bits": 4}, {"experts": pack.awq, "dense": pack.awq}),
        WeightFormat.INT4,
    ),
    "packed int4": (
        (
            "mixtral",
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
            {"experts": pack.packed_ints(4, 64, zeros=False), "dense": pack.packed_ints(4, 64, zeros=False)},
        ),
        WeightFormat.INT4,
    ),
    "packed int8 with zero points": (
        (
            "qwen3_moe",
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
            {"experts": pack.packed_ints(8, 64, zeros=True), "dense": pack.packed_ints(8, 64, zeros=True)},
        ),
        WeightFormat.INT8,
    ),
    "int8 rows": (
        ("mixtral", {"quant_method": "compressed-tensors"}, {"experts": pack.int8_rows, "dense": pack.int8_rows}),
        WeightFormat.INT8,
    ),
    "mxfp4 in int8": (("mixtral", {"quant_method": "fp8"}, {"experts": pack.mxfp4_in_int8}), WeightFormat.MXFP4),
}
WHOLE_SCALES = {
    "fp8 whole": 4,
    "nvfp4 modelopt": 4,
    "nvfp4 compressed-tensors": 4,
}  # bytes of a scale that holds for a whole matrix
Model = Callable[[str], PackedModel]


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Checkpoints by the name of the case, written once."""

    @cache
    def make(name: str) -> PackedModel:
        (family, quantised, more), _ = CASES[name]
        return packed_model(Path(tmp_path_factory.mktemp("packed")), family, quantised, **more)

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
        assert report.kernels[expected.value] == "reference"
        assert report.self_test.startswith("Same as the checkpoint") and expected.value in report.self_test
        assert report.self_test.endswith("are computed by the reference, which is slow.")
        answers.append(prefill(model, PROMPT))
        model.reset()
        assert greedy(model, PROMPT, 6) == tokens
    assert torch.equal(*answers)
    torch.testing.assert_close(answers[0], want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt-oss", "fp8 blocks", "nvfp4 modelopt", "gptq"])
def test_every_split_gives_the_same_bits(name: str, model_of: Model, load: Load) -> None:
    made = model_of(name)
    splits = [("vv", 1), ("pp", 1), ("pp", 2), ("pp", 40), ("ll", 1), ("gv", 3)]
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
        assert model.residency().kernels == {"mxfp4": "reference", "fp32": "torch"}
