"""What a GGUF file says beside its sizes: positions, routing, and why some files are only planned for."""

from pathlib import Path
from typing import Any

import pytest

from engine.contract.checkpoint import read_shape
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import CannotEstimateError, ModelFileError
from engine.contract.gguf_headers import GgufModel, read_gguf, read_gguf_values
from engine.contract.gguf_names import runnable_architectures, transformers_name
from engine.contract.gguf_run_config import gguf_run_config, why_gguf_not_run
from tests.support.weight_files import write_gguf

QWEN3: dict[str, Any] = {
    "block_count": 2, "context_length": 4096, "embedding_length": 256, "attention.head_count": 4,
    "attention.head_count_kv": 2, "attention.key_length": 64, "attention.value_length": 64, "expert_count": 4,
    "expert_used_count": 2, "expert_feed_forward_length": 256, "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e6,
}  # fmt: skip


def _model(arch: str, changes: dict[str, Any] | None = None, *tensors: str) -> GgufModel:
    pairs = {**QWEN3, **(changes or {})}
    metadata = {f"{arch}.{key}": value for key, value in pairs.items() if value is not None}
    entries = {name: TensorEntry(name, Path("m.gguf"), 0, 4, "F32", (1,)) for name in tensors}
    return GgufModel("m", {"general.architecture": arch, **metadata}, entries)


def test_positions_are_stretched_as_the_file_says() -> None:
    changes = {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 1024,
        "rope.scaling.yarn_beta_fast": 16.0,
    }  # fmt: skip
    assert gguf_run_config(_model("qwen3moe", changes))["rope_parameters"] == {
        "rope_theta": 1e6,
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        "beta_fast": 16.0,
    }
    changes = {"rope.scaling.type": "linear", "rope.scaling.factor": 1.0, "rope.freq_base": None}
    assert gguf_run_config(_model("qwen3moe", changes))["rope_parameters"] == {
        "rope_theta": 10_000.0,
        "rope_type": "default",
    }


def test_the_factor_of_latent_attention_is_a_tenth_of_what_transformers_calls_it() -> None:
    changes = {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_log_multiplier": 0.1, "rope.dimension_count": 16, "attention.kv_lora_rank": 64,
        "expert_group_count": 8, "expert_group_used_count": 4,
    }  # fmt: skip
    config = gguf_run_config(_model("deepseek2", changes, "blk.1.exp_probs_b.bias"))
    assert config["rope_parameters"]["mscale_all_dim"] == config["rope_parameters"]["mscale"] == 1.0
    assert (config["model_type"], config["n_group"], config["topk_group"]) == ("deepseek_v3", 8, 4)
    assert gguf_run_config(_model("deepseek2", changes))["model_type"] == "deepseek_v2"


def test_what_decides_the_answer_must_be_there() -> None:
    with pytest.raises(CannotEstimateError, match="layer_norm_rms_epsilon; it cannot be run"):
        gguf_run_config(_model("qwen3moe", {"attention.layer_norm_rms_epsilon": None}))


@pytest.mark.parametrize(
    ("arch", "changes", "dense", "match"),
    [
        ("qwen3vlmoe", {}, (), "parts for pictures"),
        ("qwen3moe", {"rope.dimension_count": 32}, (), "rotates 32 of 64 values"),
        ("qwen3moe", {"rope.scaling.type": "longrope"}, (), "longrope"),
        ("llama", {}, ("rope_freqs.weight",), "stretched by a table"),
        ("phimoe", {}, ("rope_factors_long.weight",), "stretched by tables"),
        ("qwen3moe", {}, ("blk.0.attn_sinks.weight",), "attn_sinks"),
    ],
)
def test_the_reason_is_said(arch: str, changes: dict[str, Any], dense: tuple[str, ...], match: str) -> None:
    model = _model(arch, changes)
    found = why_gguf_not_run(model, list(dense), {"head_dim": 64})
    assert found is not None and match in found


def test_files_that_only_rotate_a_part_of_each_head_are_no_exception_where_the_family_does_that() -> None:
    model = _model("glm4moe", {"rope.dimension_count": 32})
    assert why_gguf_not_run(model, ["blk.0.attn_q.bias", "token_embd.weight"], {"head_dim": 64}) is None
    assert gguf_run_config(model)["rope_parameters"]["partial_rotary_factor"] == 0.5


def test_a_reason_does_not_keep_a_model_from_being_planned(tmp_path: Path) -> None:
    metadata = {"general.architecture": "qwen3vlmoe"} | {f"qwen3vlmoe.{key}": value for key, value in QWEN3.items()}
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {"token_embd.weight": ("F32", (256, 8))}
    for layer in range(2):
        for name in ("gate", "up", "down"):
            tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = ("Q8_0", (256, 256, 4))
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    shape = read_shape(tmp_path)
    assert shape.not_runnable == "models with parts for pictures are run from a folder with all their parts only"
    assert len(shape.moe_layers) == 2


def test_no_two_layers_share_a_name() -> None:
    for arch in runnable_architectures():
        assert transformers_name(arch, "blk.7.attn_norm.weight") == "model.layers.7.input_layernorm.weight"
        assert transformers_name(arch, "blk.7.nothing.weight") is None


def test_long_values_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    words, text = [f"w{number}" for number in range(9000)], "x" * 9000
    write_gguf(file, {"words": words, "text": text, "numbers": list(range(9000)), "one": 7}, {"a": ("F32", (4,))})
    wanted = frozenset({"words", "text", "numbers", "one", "missing"})
    assert read_gguf_values(file, wanted) == {"words": words, "text": text, "numbers": list(range(9000)), "one": 7}
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"w8999", b"\xff8999"))
    with pytest.raises(ModelFileError, match="is no text in UTF-8"):
        read_gguf_values(file, wanted)
    file.write_bytes(whole[:5000])
    with pytest.raises(ModelFileError, match=r"m\.gguf"):
        read_gguf_values(file, wanted)


def test_several_lists_of_words_may_fill_a_file_without_tensors(tmp_path: Path) -> None:
    """As the first file of a model that was split without tensors in it."""
    words = ["a"] * 100
    write_gguf(tmp_path / "m.gguf", {"one": words, "two": words, "three": words}, {})
    assert read_gguf((tmp_path / "m.gguf",)).tensors == {}
