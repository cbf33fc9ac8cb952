"""GGUF files of every architecture answer like the stock model with the weights they stand for."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from engine.contract.checkpoint import read_shape
from engine.contract.errors import ModelFileError, UnsupportedModelError
from engine.contract.estimate import expert_record
from engine.contract.formats import WeightFormat
from engine.contract.gguf_files import gguf_files
from engine.contract.gguf_names import runnable_architectures
from engine.model.build import Drivers, load_model
from tests.engine.model.conftest import Load
from tests.support.gguf_metadata import ARCHITECTURES
from tests.support.gguf_models import GgufPair, gguf_model
from tests.support.native import alike, native_name
from tests.support.parity_table import GGUF_STORED
from tests.support.reference import greedy, prefill, random_prompt, stock_greedy, stock_logits
from tests.support.tiny_models import TinyModel, plan_for
from tests.support.untouched import untouched_drivers

PROMPT = random_prompt(19)
Make = Callable[..., GgufPair]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Files by how they are made, written once."""

    @cache
    def make(arch: str, **how: Any) -> GgufPair:
        return gguf_model(Path(tmp_path_factory.mktemp("gguf")), arch, **how)

    return make


def _tiers(pattern: str, checkpoint: TinyModel) -> str:
    layers = len(checkpoint.shape.moe_layers)
    return (pattern * layers)[:layers]


def test_every_architecture_the_engine_runs_is_among_those_that_are_tested() -> None:
    assert {known.name for known in ARCHITECTURES.values()} == set(runnable_architectures())


@pytest.mark.parametrize("arch", list(ARCHITECTURES))
def test_an_architecture_answers_like_the_stock_model_with_the_unpacked_weights(
    arch: str, made: Make, load: Load
) -> None:
    pair = made(arch, gate="Q8_0")
    assert pair.gguf.shape.not_runnable is None
    assert pair.gguf.shape.dense_bytes == pair.plain.shape.dense_bytes
    assert pair.gguf.shape.layers == pair.plain.shape.layers
    want = stock_logits(pair.plain, PROMPT)[-1]
    answers = []
    for pattern in ("vp", "lg"):
        plan = plan_for(pair.gguf, _tiers(pattern, pair.gguf), expert_slots=2)
        model = load(plan)
        report = model.residency()
        assert report.ledger_settled == report.ledger_asked == plan.ledger
        assert [layer.settled for layer in report.layers] == list(plan.tiers)
        assert report.kernels == {"q8_0": native_name() if pattern == "lg" else "reference"}
        answers.append(prefill(model, PROMPT))
    alike(answers)
    torch.testing.assert_close(answers[0], want, rtol=0, atol=1e-5)
    model.reset()
    assert greedy(model, PROMPT, 4) == stock_greedy(pair.plain, PROMPT, 4)


@pytest.mark.parametrize("name", list(GGUF_STORED))
def test_experts_stay_as_stored_and_every_split_gives_the_same_answers(name: str, made: Make, load: Load) -> None:
    pair = made("qwen3moe", wide=True, **GGUF_STORED[name])
    shape = pair.gguf.shape
    stored = GGUF_STORED[name]
    kinds = [stored["gate"], stored.get("up", stored["gate"]), stored.get("down", stored.get("up", stored["gate"]))]
    assert [form.value.upper() for form in shape.layer_storages[0].formats] == kinds
    assert sum(part.bytes for part in expert_record(shape.experts, shape.layer_storages[0]).parts) == sum(
        256 * 256 // gguf.GGML_QUANT_SIZES[kind][0] * gguf.GGML_QUANT_SIZES[kind][1]
        for kind in (gguf.GGMLQuantizationType[kind] for kind in kinds)
    )
    want = stock_logits(pair.plain, PROMPT)[-1]
    answers = []
    for pattern, slots in [("p", 1), ("l", 1), ("vplg", 3)]:
        model = load(plan_for(pair.gguf, _tiers(pattern, pair.gguf), expert_slots=slots))
        assert model.residency().ledger_settled == model.residency().ledger_asked
        answers.append(prefill(model, PROMPT))
    torch.testing.assert_close(answers[0], want, rtol=0, atol=1e-5)
    alike(answers)


@pytest.mark.parametrize("stored", ["MXFP4", "F32", "BF16", "Q8_0"])
def test_gate_and_up_rows_in_turns_and_biases_come_together(stored: str, made: Make, load: Load) -> None:
    pair = made("gpt-oss", gate=stored)
    want = stock_logits(pair.plain, PROMPT)[-1]
    models = [load(plan_for(pair.gguf, tiers)) for tiers in ("vplg", "pppp")]
    for model in models:
        torch.testing.assert_close(prefill(model, PROMPT), want, rtol=0, atol=1e-5)
        assert model.residency().self_test.startswith("Same as the checkpoint")


@pytest.mark.parametrize("experts", ["apart", "fused"])
def test_experts_in_other_tensors_are_found(experts: str, made: Make, load: Load) -> None:
    pair = made("llama", gate="Q4_0", experts=experts)
    want = stock_logits(pair.plain, PROMPT)[-1]
    torch.testing.assert_close(prefill(load(plan_for(pair.gguf, "vplg")), PROMPT), want, rtol=0, atol=1e-5)


def test_plain_experts_are_computed_as_they_are(made: Make, load: Load) -> None:
    pair = made("olmoe")
    model = load(plan_for(pair.gguf, "vplg"))
    assert model.residency().kernels == {"fp32": "torch"}
    torch.testing.assert_close(prefill(model, PROMPT), stock_logits(pair.plain, PROMPT)[-1], rtol=0, atol=1e-5)


def test_a_model_in_several_files_is_loaded_from_all_of_them(made: Make, load: Load) -> None:
    pair = made("qwen2moe", gate="Q8_0", parts=3)
    assert len(gguf_files(pair.gguf.folder)) == 3
    want = stock_logits(pair.plain, PROMPT)[-1]
    one = TinyModel(gguf_files(pair.gguf.folder)[1], pair.gguf.shape)  # picked instead of the folder
    for checkpoint in (pair.gguf, one):
        torch.testing.assert_close(prefill(load(plan_for(checkpoint, "vplg")), PROMPT), want, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("any_plan")
@pytest.mark.parametrize(("arch", "dense"), [("llama", "Q8_0"), ("qwen3moe", "Q4_0"), ("gpt-oss", "F16")])
def test_packed_dense_weights_are_unpacked_to_bf16_and_to_what_they_stand_for(
    arch: str, dense: str, made: Make, load: Load
) -> None:
    pair = made(arch, gate="Q8_0", dense=dense)
    shape = pair.gguf.shape
    assert shape.dense_format is WeightFormat.BF16
    report = load(plan_for(pair.gguf, _tiers("vplg", pair.gguf))).residency()
    assert report.ledger_settled == report.ledger_asked
    exact = {"dense_format": WeightFormat.FP32, "dense_bytes": pair.plain.shape.dense_bytes}  # for comparing
    model = load(plan_for(TinyModel(pair.gguf.folder, shape.model_copy(update=exact)), _tiers("vplg", pair.gguf)))
    torch.testing.assert_close(prefill(model, PROMPT), stock_logits(pair.plain, PROMPT)[-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("arch", ["deepseek2-mla", "qwen35moe", "qwen3next", "gpt-oss", "granitemoeshared"])
def test_a_file_with_packed_dense_weights_takes_the_bytes_that_were_planned(arch: str, made: Make, load: Load) -> None:
    pair = made(arch, gate="Q8_0", dense="Q8_0")
    assert pair.gguf.shape.dense_format is WeightFormat.BF16
    report = load(plan_for(pair.gguf, _tiers("vplg", pair.gguf))).residency()
    assert report.ledger_settled == report.ledger_asked


def test_what_a_file_says_about_text_is_used(made: Make, load: Load) -> None:
    model = load(plan_for(made("llama", gate="Q8_0").gguf, "llll"))
    tokenizer = model.tokenizer
    assert model.stop_token_ids == {2, 0}  # the end of a turn, and <|endoftext|>
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "he"}], return_dict=True)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["<|im_start|>", "he", "<|im_end|>"]
    assert tokenizer.decode(tokenizer("a b\n7")["input_ids"]) == "a b\n7"


@pytest.mark.parametrize("cut", [1, 5000, 100_000])
def test_a_truncated_file_is_refused_before_anything_is_allocated(cut: int, tmp_path: Path) -> None:
    pair = gguf_model(tmp_path, "llama", gate="Q8_0")
    plan = plan_for(pair.gguf, "vplg")
    (file,) = gguf_files(pair.gguf.folder)
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size - cut)
    with pytest.raises(ModelFileError, match=r"tiny\.gguf has .* B; its header (declares|alone)"):
        load_model(plan, report=lambda event: None, cancelled=lambda: False, drivers=untouched_drivers())


def _refused(pair: GgufPair, match: str, drivers: Drivers) -> None:
    assert pair.gguf.shape.not_runnable is not None
    with pytest.raises(UnsupportedModelError, match=match) as refused:
        load_model(plan_for(pair.gguf, "vplg"), report=lambda event: None, cancelled=lambda: False, drivers=drivers)
    assert "safetensors" in refused.value.fix


@pytest.mark.parametrize(
    ("tensor", "match"),
    [
        ("rope_freqs.weight", "positions are stretched by a table"),
        ("blk.1.attn_sub_norm.weight", r"what its tensor blk\.1\.attn_sub_norm\.weight is for is not known"),
    ],
)
def test_a_tensor_the_engine_does_not_know_is_named_and_refused(tensor: str, match: str, tmp_path: Path) -> None:
    pair = gguf_model(tmp_path, "llama", tensors={tensor: np.ones(4, dtype=np.float32)})
    _refused(pair, match, untouched_drivers())


def test_positions_that_are_not_known_are_refused(tmp_path: Path) -> None:
    pair = gguf_model(tmp_path, "llama", metadata_too={"rope.scaling.type": "longrope"})
    _refused(pair, r"scaled in a way that is not known \(longrope\)", untouched_drivers())


def test_dense_weights_that_do_not_fit_the_metadata_are_named(tmp_path: Path, load: Load) -> None:
    pair = gguf_model(tmp_path, "llama", metadata_too={"attention.head_count": 8})
    shape = read_shape(pair.gguf.folder)
    with pytest.raises(ModelFileError, match=r"self_attn\..*the model needs"):
        load(plan_for(TinyModel(pair.gguf.folder, shape), "vplg"))
