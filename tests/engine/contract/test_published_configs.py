"""config.json as it is published where transformers saves it otherwise, and what is named when a fact is missing."""

from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from engine.contract.checkpoint import read_shape
from engine.contract.errors import CannotEstimateError
from engine.contract.shape import ModelShape
from tests.support.model_configs import shape_of
from tests.support.tiny_families import tiny_config

_STEP: dict[str, Any] = {
    "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_attention_groups": 2, "head_dim": 64, "max_position_embeddings": 4096, "vocab_size": 1000,
    "sliding_window": 128, "moe_intermediate_size": 96, "moe_num_experts": 16, "moe_top_k": 4, "share_expert_dims": 96,
    "num_nextn_predict_layers": 2, "moe_layers_enum": "2,3,4,5,6,7", "rope_theta": [1e4] * 8,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"] * 2,
    "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 12},
}  # fmt: skip


def _bytes_only(shape: ModelShape) -> dict[str, Any]:
    return shape.model_dump(exclude={"name", "assumptions"})


def _config(family: str) -> dict[str, Any]:
    values: dict[str, Any] = tiny_config(family).to_dict()
    return values


def test_step_with_its_published_keys_is_what_transformers_makes_of_it(tmp_path: Path) -> None:
    kind: Any = CONFIG_MAPPING["step3p7"]
    kind(text_config=dict(_STEP)).save_pretrained(tmp_path / "saved")
    saved = read_shape(tmp_path / "saved")
    for name, own in {"named": {"model_type": "step3p5"}, "unnamed": {}}.items():
        published = shape_of({"model_type": "step3p7", "text_config": _STEP | own}, tmp_path / name)
        assert _bytes_only(published) == _bytes_only(saved)
    assert [layer.kv.n_heads for layer in saved.layers if layer.kv] == [8, 12, 12, 12, 8, 12]
    assert saved.moe_layers == (2, 3, 4, 5)


def test_the_text_part_of_step_is_published_alone_too(tmp_path: Path) -> None:
    apart = shape_of({"model_type": "step3p7", "text_config": _STEP}, tmp_path / "apart")
    assert _bytes_only(shape_of({"model_type": "step3p5"} | _STEP, tmp_path / "alone")) == _bytes_only(apart)


def test_dots3_with_its_text_part_at_the_top_is_the_same_model(tmp_path: Path) -> None:
    nested = _config("dots3_note")
    text = nested.pop("text_config")
    apart = shape_of(nested | {"text_config": text}, tmp_path / "apart")
    together = shape_of(text | nested | {"model_type": "dots3_note"}, tmp_path / "together")
    assert _bytes_only(together) == _bytes_only(apart)
    assert {layer.kv.key_dim for layer in together.layers if layer.kv} == {12, 18}


def test_experts_that_text_never_asks_are_left_out_and_said(tmp_path: Path) -> None:
    shape = shape_of(_config("ernie4_5_vl_moe"), tmp_path)
    assert (shape.experts.n_experts, shape.experts.inner) == (8, 16)
    assert "8 experts for pictures in each sparse layer are not loaded: text never uses them" in shape.assumptions


def test_experts_of_attention_are_said_to_be_dense(tmp_path: Path) -> None:
    shape = shape_of(_config("jetmoe"), tmp_path)
    assert any("experts of attention, 8,192 weights a layer" in note for note in shape.assumptions)


def test_layers_that_read_the_latents_of_others_keep_nothing_or_an_index(tmp_path: Path) -> None:
    shape = shape_of(_config("mistral_large4"), tmp_path)
    kept = [layer.kv and layer.kv.values_per_token for layer in shape.layers]
    assert kept == [12 + 8 + 12, 12 + 12, 12, None, 12 + 8, None]


@pytest.mark.parametrize(
    ("family", "absent", "fact"),
    [
        ("dbrx", "attn_config.kv_n_heads", "kv_n_heads"),
        ("dbrx", "attn_config.clip_qkv", "clip_qkv"),
        ("dbrx", "ffn_config.ffn_hidden_size", "ffn_hidden_size"),
        ("dbrx", "ffn_config.moe_num_experts", "moe_num_experts"),
        ("dots3_note_text", "kv_lora_rank", "kv_lora_rank"),
        ("ernie4_5_vl_moe_text", "moe_intermediate_size", "moe_intermediate_size"),
        ("jetmoe", "kv_channels", "kv_channels"),
        ("longcat_flash", "num_layers", "num_layers"),
        ("longcat_flash", "q_lora_rank", "q_lora_rank"),
        ("mistral_large4_text", "index_head_dim", "index_head_dim"),
    ],
)
def test_a_missing_fact_is_named(family: str, absent: str, fact: str, tmp_path: Path) -> None:
    values = _config(family)
    *tables, key = absent.split(".")
    table = values
    for name in tables:
        table = table[name]
    del table[key]
    with pytest.raises(CannotEstimateError) as refused:
        shape_of(values, tmp_path)
    assert refused.value.numbers["fact"] == fact
    assert fact in refused.value.sentence


def test_sizes_of_sliding_layers_are_not_guessed(tmp_path: Path) -> None:
    values = {key: value for key, value in _config("dots3_note_text").items() if key != "per_layer_config"}
    with pytest.raises(CannotEstimateError, match="swa_num_attention_heads"):
        shape_of(values, tmp_path)


@pytest.mark.parametrize(
    ("family", "wrong"),
    [
        ("dots3_note_text", {"per_layer_config": ["a list"]}),
        ("dots3_note_text", {"layer_types": ["mamba"] * 4}),
        ("dots3_note_text", {"mlp_layer_types": None, "moe_layer_freq": [1]}),
        ("ernie4_5_vl_moe_text", {"moe_intermediate_size": [16, 12, 8]}),
        ("longcat_flash", {"num_layers": 1 << 30}),
        ("mistral_large4_text", {"kv_source_layers": [0, 0, 1, 0, 4, 4]}),
        ("mistral_large4_text", {"kv_source_layers": [-1] * 6}),
        ("mistral_large4_text", {"no_rope_layers": [1]}),
        ("mistral_large4_text", {"num_key_value_heads": 2}),
    ],
)
def test_a_fact_that_cannot_be_is_refused_with_its_name(family: str, wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CannotEstimateError) as refused:
        shape_of(_config(family) | wrong, tmp_path)
    assert refused.value.numbers["fact"] in wrong


@pytest.mark.parametrize("wrong", [{"moe_layers_enum": "a,b"}, {"attention_other_setting": [12]}])
def test_published_keys_of_step_that_make_no_sense_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CannotEstimateError):
        shape_of({"model_type": "step3p7", "text_config": _STEP | wrong}, tmp_path)
