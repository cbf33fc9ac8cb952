"""Weights stored in unusual ways: the plan counts what the engine holds, and answers are the stock model's."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.contract.checkpoint import read_shape
from engine.contract.errors import ModelFileError
from engine.contract.formats import WeightFormat
from tests.engine.model.conftest import Load
from tests.support.parity import compare
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import TinyModel, plan_for

Tensors = dict[str, Tensor]
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def _changed(made: TinyModel, change: Callable[[Tensors], object]) -> TinyModel:
    file = made.folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return TinyModel(made.folder, read_shape(made.folder))


def _with_type(made: TinyModel, **named: str) -> TinyModel:
    """The same with the type named otherwise in config.json, or not at all."""
    file = made.folder / "config.json"
    config = json.loads(file.read_text("utf-8"))
    del config["dtype"]
    file.write_text(json.dumps({**config, **named}), "utf-8")
    return TinyModel(made.folder, read_shape(made.folder))


def _same_head(tensors: Tensors) -> None:
    tensors[HEAD] = tensors[EMBEDDING].clone()


def _other_head(tensors: Tensors) -> None:
    tensors[HEAD] = tensors[EMBEDDING].flip(0).contiguous()


def _head_alone(tensors: Tensors) -> None:
    tensors[HEAD] = tensors.pop(EMBEDDING)


@pytest.mark.parametrize(("change", "matrices"), [(_same_head, 1), (_other_head, 2), (_head_alone, 1)])
def test_a_tied_head_that_is_stored_counts_if_it_is_another_matrix_or_the_only_one(
    change: Callable[[Tensors], None], matrices: int, tmp_path: Path
) -> None:
    made = tiny_family("qwen3_moe", tmp_path, tie_word_embeddings=True)
    changed = _changed(made, change)
    head_bytes = 4 * made.shape.vocab_size * made.shape.hidden_size
    assert changed.shape.dense_bytes == made.shape.dense_bytes + (matrices - 1) * head_bytes
    found = compare(changed, "vplg")
    assert found.good, found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_config_that_names_no_type_leaves_it_to_the_files(dtype: torch.dtype, tmp_path: Path) -> None:
    checkpoint = _with_type(tiny_family("qwen3_moe", tmp_path, dtype))
    names = {torch.float32: WeightFormat.FP32, torch.bfloat16: WeightFormat.BF16, torch.float16: WeightFormat.FP16}
    assert checkpoint.shape.dense_format is names[dtype]
    assert any("names no weight type" in words for words in checkpoint.shape.assumptions)
    found = compare(checkpoint, "vplg", dtype=dtype)
    assert found.good, found


def test_a_few_numbers_in_another_type_do_not_decide(tmp_path: Path) -> None:
    made = tiny_family("qwen3_moe", tmp_path, torch.bfloat16)

    def norms_in_fp32(tensors: Tensors) -> None:
        tensors |= {name: tensor.float() for name, tensor in tensors.items() if "norm" in name}

    checkpoint = _with_type(_changed(made, norms_in_fp32))
    assert checkpoint.shape.dense_format is WeightFormat.BF16


@pytest.mark.parametrize("words", ["torch.bfloat16", "auto"])
def test_a_type_in_words_that_torch_does_not_know_is_understood(words: str, tmp_path: Path, load: Load) -> None:
    checkpoint = _with_type(tiny_family("qwen3_moe", tmp_path, torch.bfloat16), torch_dtype=words)
    assert checkpoint.shape.dense_format is WeightFormat.BF16
    assert load(plan_for(checkpoint, "vplg")).residency().self_test.startswith("Same as the checkpoint")


@pytest.mark.parametrize(
    ("family", "part"),
    [("qwen3_moe", "experts.3.up_proj"), ("mixtral", "experts.0.w2"), ("gpt_oss", "experts.down_proj")],
)
def test_an_expert_that_lies_the_other_way_round_is_named(family: str, part: str, tmp_path: Path, load: Load) -> None:
    """It has as many bytes as it should, and would answer nonsense."""

    def turn(tensors: Tensors) -> None:
        name = next(name for name in sorted(tensors) if part in name and "bias" not in name)
        tensors[name] = tensors[name].transpose(-1, -2).contiguous()

    checkpoint = _changed(tiny_family(family, tmp_path), turn)
    with pytest.raises(ModelFileError, match=rf"{part}.* is \[.*\]; the model needs \["):
        load(plan_for(checkpoint, "llll"))
