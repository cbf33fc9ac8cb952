"""Model folders: layouts, damaged and foreign configurations, formats, and headers as the truth for weights."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.contract.checkpoint import read_shape, resolve_model_folder
from engine.contract.checkpoint_names import expert_name
from engine.contract.errors import (
    CannotEstimateError,
    ModelFileError,
    ModelFolderError,
    SplitpinError,
    UnsupportedModelError,
)
from engine.contract.formats import WeightFormat
from tests.support.model_configs import GPT_OSS_20B, MINIMAX_M25, MIXTRAL_8X7B, QWEN3_30B, folder_with, shape_of
from tests.support.tiny_families import tiny_config
from tests.support.weight_files import tensor, write_safetensors

_SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 64}
_QWEN3 = {
    **_SMALL, "num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 24, "intermediate_size": 40,
    "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [0],
}  # fmt: skip
_MIXTRAL = {**_SMALL, "num_key_value_heads": 2, "intermediate_size": 24, "num_local_experts": 4}
_GPT_OSS = {
    **_SMALL, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 32, "num_local_experts": 4,
    "num_experts_per_tok": 2, "sliding_window": 16,
}  # fmt: skip
_GLM4 = {
    **_SMALL, "num_key_value_heads": 2, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "intermediate_size": 40,
}  # fmt: skip
_GRANITE = {**_SMALL, "num_key_value_heads": 2, "intermediate_size": 24, "num_local_experts": 4}
_GEMMA4 = {
    **_SMALL, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32, "intermediate_size": 40,
    "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 24,
    "hidden_size_per_layer_input": 0,
}  # fmt: skip

TINY = [
    ("qwen3_moe", _QWEN3, False),
    ("qwen3_moe", _QWEN3, True),
    ("mixtral", _MIXTRAL, False),
    ("gpt_oss", _GPT_OSS, False),
    ("glm4_moe", _GLM4, False),
    ("granitemoe", _GRANITE, True),
    ("gemma4_text", _GEMMA4, True),
    ("phimoe", _MIXTRAL, False),
]  # fmt: skip


def _saved(kind: str, values: dict[str, Any], tied: bool, folder: Path, dtype: torch.dtype) -> None:
    kinds: Any = transformers.CONFIG_MAPPING
    auto: Any = transformers.AutoModelForCausalLM
    config = kinds[kind](**values, tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    torch.manual_seed(0)
    auto.from_config(config, dtype=dtype).save_pretrained(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("kind", "values", "tied"), TINY)
def test_headers_and_configuration_agree_on_every_byte(
    kind: str, values: dict[str, Any], tied: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    _saved(kind, values, tied, tmp_path / "whole", dtype)
    whole = read_shape(tmp_path / "whole")
    config = json.loads((tmp_path / "whole" / "config.json").read_text("utf-8"))
    alone = shape_of(config, tmp_path / "config" / "whole")
    assert whole.source == "headers"
    assert alone.source == "config"
    assert whole.model_copy(update={"source": "config"}) == alone
    assert whole.expert_format is {torch.bfloat16: WeightFormat.BF16, torch.float32: WeightFormat.FP32}[dtype]
    assert whole.dense_bytes > 0


def test_a_tied_head_in_the_files_is_not_counted_twice(tmp_path: Path) -> None:
    _saved("qwen3_moe", _QWEN3, True, tmp_path, torch.float32)
    before = read_shape(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    assert "lm_head.weight" not in tensors
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, file)
    assert read_shape(tmp_path) == before


def test_layers_that_only_guess_ahead_are_not_counted(tmp_path: Path) -> None:
    _saved("qwen3_moe", _QWEN3, False, tmp_path, torch.float32)
    before = read_shape(tmp_path)
    file = tmp_path / "model.safetensors"
    more = {
        "model.layers.3.mlp.experts.0.down_proj.weight": torch.zeros(8, 8),
        "model.layers.3.self_attn.q_proj.weight": torch.zeros(8, 8),
        "mtp.fc.weight": torch.zeros(8, 8),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8),
    }
    save_file(load_file(file) | more, file)
    assert read_shape(tmp_path) == before


def test_parts_for_pictures_in_the_files_are_counted_as_they_are_loaded(tmp_path: Path) -> None:
    """The vision part has more layers than the text part, so that layer numbers cannot be mixed up unseen."""
    kinds: Any = transformers.CONFIG_MAPPING
    auto: Any = transformers.AutoModelForImageTextToText
    vision = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 5, "num_attention_heads": 4,
              "num_key_value_heads": 4, "head_dim": 8}  # fmt: skip
    config = kinds["gemma4"](text_config=_GEMMA4, vision_config=vision, audio_config=None)
    model = auto.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    held = {tensor.data_ptr(): tensor.nbytes for tensor in model.state_dict().values()}
    experts = sum(3 * 32 * 24 * 4 * 2 for _ in shape.moe_layers)
    assert shape.family == "gemma4_text"
    assert shape.moe_layers == (0, 1, 2)
    assert shape.dense_bytes == sum(held.values()) - experts


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.mlp.shared_experts.gate_proj.weight",
        "model.layers.0.mlp.shared_expert.up_proj.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.experts.e_score_correction_bias",
        "model.layers.0.mlp.experts.post_expert_norm.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.0.block_sparse_moe.router.layer.weight",
    ],
)
def test_what_every_token_uses_is_no_expert_tensor(name: str) -> None:
    assert expert_name(name) is None


def test_experts_that_do_not_match_the_configuration_are_refused(tmp_path: Path) -> None:
    _saved("qwen3_moe", _QWEN3, False, tmp_path, torch.float32)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps(config | {"mlp_only_layers": []}), "utf-8")
    with pytest.raises(ModelFileError, match=r"3 layers; the weight files hold them in 2 .*layer 0"):
        read_shape(tmp_path)
    file.write_text(json.dumps(config | {"moe_intermediate_size": 32}), "utf-8")
    with pytest.raises(ModelFileError, match="routed experts of layer"):
        read_shape(tmp_path)


def test_a_truncated_shard_is_found_while_reading_the_shape(tmp_path: Path) -> None:
    _saved("mixtral", _MIXTRAL, False, tmp_path, torch.float32)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match="100 B short"):
        read_shape(tmp_path)


def _snapshot(cache: Path, name: str) -> Path:
    return folder_with(QWEN3_30B, cache / "snapshots" / name)


def test_t18a_a_download_cache_folder_leads_to_its_snapshot(tmp_path: Path) -> None:
    cache = tmp_path / "models--Qwen--Qwen3-30B-A3B"
    _snapshot(cache, "old")
    wanted = _snapshot(cache, "abc")
    (cache / "blobs").mkdir()
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("abc\n", "utf-8")
    assert resolve_model_folder(cache) == wanted
    assert read_shape(cache).name == "Qwen3-30B-A3B"
    assert read_shape(wanted).name == "Qwen3-30B-A3B"


def test_t18a_a_single_snapshot_needs_no_ref(tmp_path: Path) -> None:
    wanted = _snapshot(tmp_path, "abc")
    assert resolve_model_folder(tmp_path) == wanted


def test_t18b_two_snapshots_without_a_ref_are_asked_about(tmp_path: Path) -> None:
    _snapshot(tmp_path, "one")
    _snapshot(tmp_path, "two")
    with pytest.raises(ModelFolderError, match="2 snapshots") as refused:
        resolve_model_folder(tmp_path)
    assert "one, two" in refused.value.fix


def test_t18c_no_config_is_said_with_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=re.escape(f"no config.json in {tmp_path}")):
        read_shape(tmp_path)
    with pytest.raises(ModelFolderError, match="no folder"):
        read_shape(tmp_path / "absent")


def test_t18d_an_unknown_type_is_not_supported_and_others_are_listed(tmp_path: Path) -> None:
    config = {"model_type": "foo_moe", "architectures": ["FooMoeForCausalLM"], "num_hidden_layers": 2, "num_experts": 8}
    with pytest.raises(UnsupportedModelError, match=r"foo_moe is not supported .*FooMoeForCausalLM") as refused:
        shape_of(config, tmp_path)
    assert "qwen3_moe" in refused.value.fix


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64},
        {"model_type": "qwen2_moe", **_QWEN3, "num_experts": 0},
        {"model_type": "qwen3_moe", **_QWEN3, "mlp_only_layers": [0, 1, 2]},
        {"model_type": "gemma4_text", **_GEMMA4, "enable_moe_block": False},
    ],
)
def test_models_without_routed_experts_are_refused(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="not a Mixture-of-Experts model"):
        shape_of(config, tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[1]", '"text"', "\udcff"])
def test_a_broken_config_is_an_error_of_the_folder(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelFolderError, match=r"config\.json"):
        read_shape(tmp_path)


@pytest.mark.parametrize(
    "fact",
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "num_experts",
     "moe_intermediate_size"],
)  # fmt: skip
@pytest.mark.parametrize("value", [None, "48", -1, 2.5, True, []])
def test_a_fact_that_decides_memory_is_named_when_it_is_missing_or_wrong(
    fact: str, value: object, tmp_path: Path
) -> None:
    config = {key: item for key, item in QWEN3_30B.items() if key != fact}
    if value is not None:
        config[fact] = value
    with pytest.raises(CannotEstimateError, match=fact) as refused:
        shape_of(config, tmp_path)
    assert refused.value.numbers["fact"] == fact


def test_more_active_experts_than_there_are_is_impossible(tmp_path: Path) -> None:
    with pytest.raises(CannotEstimateError, match="impossible model: 9 active experts a token of 8"):
        shape_of(QWEN3_30B | {"num_experts": 8, "num_experts_per_tok": 9}, tmp_path)


@pytest.mark.parametrize(
    ("quantisation", "expected"),
    [
        ({"quant_method": "mxfp4"}, WeightFormat.MXFP4),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, WeightFormat.FP8_BLOCK),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, WeightFormat.NVFP4),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, WeightFormat.NVFP4),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
            },
            WeightFormat.NVFP4,
        ),
    ],
)
def test_the_expert_format_comes_from_the_quantisation(
    quantisation: dict[str, Any], expected: WeightFormat, tmp_path: Path
) -> None:
    shape = shape_of(MIXTRAL_8X7B | {"quantization_config": quantisation}, tmp_path)
    assert shape.expert_format is expected
    assert shape.dense_format is WeightFormat.BF16
    assert any("counted in bf16" in note for note in shape.assumptions)


@pytest.mark.parametrize(
    "quantisation",
    [
        {"quant_method": "gptq"},
        {"quant_method": "gptq", "bits": 5, "group_size": 128},
        {"quant_method": "awq", "bits": 4, "group_size": "128"},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quant_method": ["fp8"]},
        {},
        "fp8",
    ],
)
def test_an_unknown_quantisation_cannot_be_estimated(quantisation: object, tmp_path: Path) -> None:
    with pytest.raises(CannotEstimateError, match="stored as"):
        shape_of(MIXTRAL_8X7B | {"quantization_config": quantisation}, tmp_path)


@pytest.mark.parametrize(
    ("key", "name", "expected"),
    [
        ("torch_dtype", "float16", WeightFormat.FP16),
        ("dtype", "float32", WeightFormat.FP32),
        ("dtype", "bfloat16", WeightFormat.BF16),
    ],
)
def test_the_plain_format_comes_from_dtype(key: str, name: str, expected: WeightFormat, tmp_path: Path) -> None:
    shape = shape_of(QWEN3_30B | {key: name}, tmp_path)
    assert shape.expert_format is shape.dense_format is expected
    assert not any("weight type" in note for note in shape.assumptions)


def test_a_missing_dtype_is_taken_as_bf16_and_said(tmp_path: Path) -> None:
    shape = shape_of(QWEN3_30B, tmp_path)
    assert shape.dense_format is WeightFormat.BF16
    assert any("no weight type" in note for note in shape.assumptions)


def test_packed_formats_are_estimated_and_run(tmp_path: Path) -> None:
    assert shape_of(GPT_OSS_20B, tmp_path / "a").not_runnable is None
    assert shape_of(MINIMAX_M25, tmp_path / "b").not_runnable is None


def test_every_refusal_has_a_sentence_and_a_fix(tmp_path: Path) -> None:
    configs: list[dict[str, Any]] = [{}, {"model_type": 3}, {"text_config": {"text_config": {}}}, {"model_type": None}]
    for index, config in enumerate(configs):
        with pytest.raises(SplitpinError) as refused:
            shape_of(config, tmp_path / str(index))
        assert refused.value.sentence
        assert refused.value.fix


def test_packed_experts_whose_gate_and_up_come_in_turn_are_planned_and_not_run(tmp_path: Path) -> None:
    config = tiny_config("inkling2_text")
    config.save_pretrained(tmp_path)
    inner, width = config.moe_intermediate_size, config.hidden_size
    tensors = {"model.llm.embed.weight": tensor("BF16", config.vocab_size, width)}
    for layer in range(config.num_hidden_layers):
        stem = f"model.llm.layers.{layer}.mlp.experts"
        for name, rows, columns in (("w13", 2 * inner, width), ("w2", width, inner)):
            tensors[f"{stem}.{name}_weight"] = tensor("F8_E4M3", 8, rows, columns)
            tensors[f"{stem}.{name}_weight_scale"] = tensor("U8", 8, rows, -(-columns // 32))
    write_safetensors(tmp_path / "model.safetensors", tensors)
    shape = read_shape(tmp_path)
    assert shape.expert_format is WeightFormat.MXFP8
    assert shape.not_runnable is not None
    assert "gate and up in turn" in shape.not_runnable
