"""Folders as they are published where transformers would save them otherwise."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.contract.checkpoint import read_shape
from engine.contract.formats import WeightFormat
from tests.engine.model.conftest import Load
from tests.support.packed_models import packed_model
from tests.support.packed_weights import fp8_blocks
from tests.support.parity import differences
from tests.support.reference import prefill, random_prompt, stock_logits
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import TinyModel, plan_for

PROMPT = random_prompt(23)


def _assert_answers(folder: Path, want: torch.Tensor, load: Load) -> None:
    model = TinyModel(folder, read_shape(folder))
    loaded = load(plan_for(model, "vplg"[: len(model.shape.moe_layers)].ljust(len(model.shape.moe_layers), "l")))
    assert differences(loaded.residency()) == ""
    torch.testing.assert_close(prefill(loaded, PROMPT), want, rtol=0, atol=1e-5)


def test_longcat_needs_no_weights_for_choices_that_compute_nothing(tmp_path: Path, load: Load) -> None:
    model = tiny_family("longcat_flash", tmp_path)
    want = stock_logits(model, PROMPT)[-1]
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    idle = [name for name in tensors if (match := re.search(r"experts\.(\d+)\.", name)) and int(match[1]) >= 8]
    assert len(idle) == 3 * 4 * 2  # layers, choices, gate and up
    save_file({name: tensor for name, tensor in tensors.items() if name not in idle}, file, metadata={"format": "pt"})
    assert read_shape(tmp_path) == model.shape
    _assert_answers(tmp_path, want, load)


def test_dots3_runs_with_its_text_part_at_the_top_of_config_json(tmp_path: Path, load: Load) -> None:
    model = tiny_family("dots3_note", tmp_path)
    want = stock_logits(model, PROMPT)[-1]
    file = tmp_path / "config.json"
    config = json.loads(file.read_text("utf-8"))
    text = config.pop("text_config")
    file.write_text(json.dumps(text | config | {"model_type": "dots3_note"}), "utf-8")
    assert read_shape(tmp_path).dense_bytes == model.shape.dense_bytes
    _assert_answers(tmp_path, want, load)


def test_the_text_part_of_step_runs_alone(tmp_path: Path, load: Load) -> None:
    """transformers has it inside a model with pictures only; the judge here is that whole model."""
    model = tiny_family("step3p7", tmp_path)
    want = stock_logits(model, PROMPT)[-1]
    weights, file = tmp_path / "model.safetensors", tmp_path / "config.json"
    text = {name: one for name, one in load_file(weights).items() if not name.startswith(("vision", "vit_large"))}
    assert 0 < sum(one.nbytes for name, one in text.items() if ".moe." not in name) < model.shape.dense_bytes
    save_file(text, weights, metadata={"format": "pt"})
    config = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(config["text_config"] | {"model_type": "step3p5"}), "utf-8")
    shape = read_shape(tmp_path)
    assert shape.dense_bytes < model.shape.dense_bytes
    _assert_answers(tmp_path, want, load)


@pytest.mark.parametrize("family", ["longcat_flash", "step3p7"])  # experts one by one, and all in one tensor
def test_experts_in_fp8_blocks_run_as_they_are(family: str, tmp_path: Path, load: Load) -> None:
    quantised = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    made = packed_model(tmp_path, family, quantised, fp8_blocks("weight_scale_inv", torch.float32))
    shape = made.packed.shape
    assert shape.expert_format is WeightFormat.FP8_BLOCK
    assert shape.dense_bytes == made.plain.shape.dense_bytes
    _assert_answers(made.packed.folder, stock_logits(made.plain, PROMPT)[-1], load)
