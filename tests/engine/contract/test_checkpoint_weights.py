"""Bytes of the routed experts from the headers of quantised checkpoints, in every layout that is published."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.contract.checkpoint import read_shape
from engine.contract.errors import CannotEstimateError, ModelFileError
from engine.contract.estimate import banks, expert_record
from engine.contract.formats import WeightFormat
from engine.contract.shape import ModelShape
from tests.support.model_configs import GPT_OSS_120B, MINIMAX_M25, QWEN3_30B, Config, folder_with
from tests.support.packed_layouts import (
    Matrix,
    awq,
    fp4_exponents,
    fp8_blocks,
    fp8_rows,
    fp8_whole,
    gptq,
    int8_rows,
    mxfp4,
    nvfp4_modelopt,
    nvfp4_packed,
    packed_int,
    plain,
)
from tests.support.weight_files import Tensor, tensor, write_safetensors

E, M, F = 4, 512, 256
TINY: Config = QWEN3_30B | {
    "num_hidden_layers": 2, "hidden_size": M, "moe_intermediate_size": F, "num_experts": E, "num_experts_per_tok": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 100, "torch_dtype": "bfloat16",
}  # fmt: skip


def _experts(
    matrix: Matrix, layer: int, down: Matrix | None = None, sizes: tuple[int, int, int] = (E, M, F)
) -> dict[str, Tensor]:
    experts, width, inner = sizes
    found: dict[str, Tensor] = {}
    for expert in range(experts):
        for name, rows, columns in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            for suffix, entry in ((down or matrix) if name == "down" else matrix)(rows, columns).items():
                found[f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj.{suffix}"] = entry
    return found


def _shape(folder: Path, config: Config, *parts: dict[str, Tensor]) -> ModelShape:
    """One shard for each part, found through an index."""
    folder_with(config, folder)
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts):
        file = f"model-{number + 1:05}-of-{len(parts):05}.safetensors"
        write_safetensors(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), "utf-8")
    return read_shape(folder)


DENSE = {"model.embed_tokens.weight": tensor("BF16", 100, M), "model.layers.0.mlp.gate.weight": tensor("BF16", E, M)}
DENSE_BYTES = 2 * (100 * M + E * M)
WEIGHTS = 3 * E * M * F  # of one layer


@pytest.mark.parametrize(
    ("matrix", "expected", "bank", "beside"),
    [
        pytest.param(plain("BF16"), WeightFormat.BF16, 2 * WEIGHTS, 0, id="bf16"),
        pytest.param(plain("F16"), WeightFormat.FP16, 2 * WEIGHTS, 0, id="fp16"),
        pytest.param(plain("F32"), WeightFormat.FP32, 4 * WEIGHTS, 0, id="fp32"),
        pytest.param(fp8_whole, WeightFormat.FP8, WEIGHTS, 3 * E * 4, id="fp8 one scale"),
        pytest.param(fp8_rows, WeightFormat.FP8_CHANNEL, WEIGHTS + E * (2 * F + M) * 2, 0, id="fp8 rows"),
        pytest.param(fp8_blocks("F32"), WeightFormat.FP8_BLOCK, None, 0, id="fp8 blocks fp32"),
        pytest.param(fp8_blocks("BF16"), WeightFormat.FP8_BLOCK, None, 0, id="fp8 blocks bf16"),
        pytest.param(fp8_blocks("F8_E8M0"), WeightFormat.FP8_BLOCK, None, 0, id="fp8 blocks ue8m0"),
        pytest.param(nvfp4_modelopt, WeightFormat.NVFP4, WEIGHTS * 9 // 16, 3 * E * 4, id="NVFP4 modelopt"),
        pytest.param(nvfp4_packed, WeightFormat.NVFP4, WEIGHTS * 9 // 16, 3 * E * 4, id="NVFP4 compressed-tensors"),
        pytest.param(mxfp4, WeightFormat.MXFP4, WEIGHTS * 17 // 32, 0, id="MXFP4"),
        pytest.param(fp4_exponents, WeightFormat.MXFP4, WEIGHTS * 17 // 32, 0, id="MXFP4 in int8"),
        pytest.param(
            gptq(4, 128), WeightFormat.INT4,
            WEIGHTS // 2 + WEIGHTS // 128 * 2 + WEIGHTS // 128 // 2 + E * (2 * M + F) * 4, 0, id="GPTQ 4 bits",
        ),
        pytest.param(
            gptq(8, 64), WeightFormat.INT8,
            WEIGHTS + WEIGHTS // 64 * 2 + WEIGHTS // 64 + E * (2 * M + F) * 4, 0, id="GPTQ 8 bits",
        ),
        pytest.param(
            gptq(3, 128), WeightFormat.INT3,
            WEIGHTS * 3 // 8 + WEIGHTS // 128 * 2 + WEIGHTS // 128 * 3 // 8 + E * (2 * M + F) * 4, 0, id="GPTQ 3 bits",
        ),
        pytest.param(
            awq, WeightFormat.INT4, WEIGHTS // 2 + WEIGHTS // 128 * 2 + WEIGHTS // 128 // 2, 0, id="AWQ"
        ),
        pytest.param(
            packed_int(True), WeightFormat.INT4, WEIGHTS // 2 + WEIGHTS // 128 * 2, 0, id="packed int4",
        ),
        pytest.param(
            packed_int(False), WeightFormat.INT4, WEIGHTS // 2 + WEIGHTS // 128 * 2 + WEIGHTS // 128 // 2, 0,
            id="packed int4 with zero points",
        ),
        pytest.param(int8_rows, WeightFormat.INT8, WEIGHTS + E * (2 * F + M) * 2, 0, id="int8 rows"),
    ],
)  # fmt: skip
def test_every_layout_gives_its_exact_bytes(
    matrix: Matrix, expected: WeightFormat, bank: int | None, beside: int, tmp_path: Path
) -> None:
    shape = _shape(tmp_path, TINY, DENSE, _experts(matrix, 0), _experts(matrix, 1))
    on_disk = sum(size for name, (_, _, size) in _experts(matrix, 0).items() if _is_kept(name))
    assert shape.expert_format is expected
    assert banks(shape) == (shape_bank(shape, on_disk - beside),) * 2
    assert bank is None or on_disk - beside == bank
    assert shape.dense_bytes == DENSE_BYTES + 2 * beside
    assert shape.not_runnable is None


def _is_kept(name: str) -> bool:
    return not name.endswith(("input_scale", "input_global_scale", "weight_shape"))


def shape_bank(shape: ModelShape, stored: int) -> int:
    """A bank is its bytes on disk, with each part of each expert on a cache line and the whole on pages."""
    record = expert_record(shape.experts, shape.layer_storages[0])
    assert sum(part.bytes for part in record.parts) * E == stored
    return -(-E * record.bytes // 4096) * 4096


def test_t06_gpt_oss_on_disk_is_what_the_configuration_promises(tmp_path: Path) -> None:
    config = GPT_OSS_120B | {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
    prefix = "model.layers.{}.mlp.experts.{}"
    parts = {
        "gate_up_proj_blocks": tensor("U8", 128, 5760, 90, 16), "gate_up_proj_scales": tensor("U8", 128, 5760, 90),
        "gate_up_proj_bias": tensor("BF16", 128, 5760), "down_proj_blocks": tensor("U8", 128, 2880, 90, 16),
        "down_proj_scales": tensor("U8", 128, 2880, 90), "down_proj_bias": tensor("BF16", 128, 2880),
    }  # fmt: skip
    shape = _shape(
        tmp_path, config, *({prefix.format(layer, name): entry for name, entry in parts.items()} for layer in range(2))
    )
    assert banks(shape) == (1_694_269_440,) * 2
    assert shape.storages == ()
    assert [item.what for item in shape.differences] == ["other weights"]  # there are none in these files


def test_t07_fp8_blocks_of_deepseek_v3(tmp_path: Path) -> None:
    config = TINY | {"hidden_size": 7168, "moe_intermediate_size": 2048, "num_experts": 256, "num_hidden_layers": 1}
    parts = _experts(fp8_blocks("F32"), 0, sizes=(256, 7168, 2048))
    shape = _shape(tmp_path, config, parts)
    assert sum(size for _, _, size in parts.values()) == 11_277_041_664
    assert banks(shape) == (11_277_041_664,)


def test_t10_nvfp4_of_minimax(tmp_path: Path) -> None:
    """The scales of whole matrices, 0.0002 % here, are counted with the dense weights: the bank is the convention's."""
    config = MINIMAX_M25 | {"num_hidden_layers": 1}
    names = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    parts = {}
    for name, entry in _experts(nvfp4_modelopt, 0, sizes=(256, 3072, 1536)).items():
        head, _, tail = name.replace(".mlp.", ".block_sparse_moe.").rpartition(".experts.")
        expert, matrix, suffix = tail.split(".")
        parts[f"{head}.experts.{expert}.{names[matrix]}.{suffix}"] = entry
    shape = _shape(tmp_path, config, parts)
    assert banks(shape) == (2_038_431_744,)
    assert shape.dense_bytes == 3 * 256 * 4
    assert shape.expert_format is WeightFormat.NVFP4


def test_layers_and_matrices_may_be_stored_differently(tmp_path: Path) -> None:
    first = _experts(packed_int(True), 0, down=fp8_rows)
    second = _experts(plain("BF16"), 1)
    shape = _shape(tmp_path, TINY, DENSE, first, second)
    one, two = banks(shape)
    assert one == -(-sum(size for name, (_, _, size) in first.items() if _is_kept(name)) // 4096) * 4096
    assert two == 2 * WEIGHTS
    assert shape.stored_as == "bf16 and int4 and fp8_channel"
    assert shape.expert_format is WeightFormat.BF16
    assert shape.not_runnable is None
    names = [part.name for part in expert_record(shape.experts, shape.layer_storages[0]).parts]
    assert names == ["gate_up", "gate_up_scale", "down", "down_scale"]


def test_what_config_json_promised_otherwise_is_said_with_both_byte_counts(tmp_path: Path) -> None:
    config = TINY | {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    shape = _shape(tmp_path, config, DENSE, _experts(plain("BF16"), 0), _experts(plain("BF16"), 1))
    experts = next(item for item in shape.differences if item.what == "routed experts")
    assert experts.config_bytes == 2 * WEIGHTS * 9 // 16
    assert experts.file_bytes == 2 * 2 * WEIGHTS == sum(banks(shape))


def test_a_configuration_that_names_an_unknown_method_does_not_stand_against_the_files(tmp_path: Path) -> None:
    config = TINY | {"quantization_config": {"quant_method": "never_heard_of"}}
    shape = _shape(tmp_path, config, DENSE, _experts(plain("BF16"), 0), _experts(plain("BF16"), 1))
    assert sum(banks(shape)) == 4 * WEIGHTS
    assert shape.differences == ()


def _compressed(layout: str, **weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": {"weights": weights}}}


AGREEING: list[tuple[dict[str, Any], Matrix]] = [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}, gptq(4, 128)),
    ({"quant_method": "gptq", "bits": 8, "group_size": 64}, gptq(8, 64)),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, awq),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp8_blocks("F32")),
    ({"quant_method": "fp8", "weight_block_size": None}, fp8_whole),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, fp8_whole),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, nvfp4_modelopt),
    (_compressed("nvfp4-pack-quantized"), nvfp4_packed),
    (_compressed("mxfp4-pack-quantized"), mxfp4),
    (
        _compressed("pack-quantized", num_bits=4, type="int", symmetric=True, strategy="group", group_size=128),
        packed_int(True),
    ),
    (
        _compressed("pack-quantized", num_bits=4, type="int", symmetric=False, strategy="group", group_size=128),
        packed_int(False),
    ),
    (_compressed("int-quantized", num_bits=8, type="int", symmetric=True, strategy="channel"), int8_rows),
    (_compressed("float-quantized", num_bits=8, type="float", strategy="channel"), fp8_rows),
]


@pytest.mark.parametrize(("quantisation", "matrix"), AGREEING)
def test_configuration_and_files_of_one_method_agree(
    quantisation: dict[str, Any], matrix: Matrix, tmp_path: Path
) -> None:
    config = TINY | {"quantization_config": quantisation}
    alone = read_shape(folder_with(config, tmp_path / "alone"))
    whole = _shape(tmp_path / "whole", config, DENSE, _experts(matrix, 0), _experts(matrix, 1))
    assert whole.layer_storages == alone.layer_storages
    assert whole.expert_format is alone.expert_format
    assert not any(item.what == "routed experts" for item in whole.differences)


def test_an_expert_without_weights_is_named(tmp_path: Path) -> None:
    parts = _experts(nvfp4_modelopt, 0)
    del parts["model.layers.0.mlp.experts.2.up_proj.weight_scale"]
    with pytest.raises(ModelFileError, match=r"scale of up; config.json describes 4 experts, and expert 2 has none"):
        _shape(tmp_path, TINY | {"num_hidden_layers": 1}, parts)


def test_experts_of_one_layer_stored_differently_are_not_guessed_at(tmp_path: Path) -> None:
    parts = _experts(plain("BF16"), 0)
    parts["model.layers.0.mlp.experts.1.up_proj.weight"] = tensor("F32", F, M)
    with pytest.raises(CannotEstimateError, match="stored differently"):
        _shape(tmp_path, TINY | {"num_hidden_layers": 1}, parts)


@pytest.mark.parametrize(
    "matrix",
    [
        lambda rows, columns: {"weight": tensor("U8", rows, columns // 2), "absmax": tensor("F32", rows)},
        lambda rows, columns: {"weight": tensor("U8", rows, columns // 2)},
        lambda rows, columns: {"weight": tensor("BF16", rows, columns), "weight_scale": tensor("F32", rows)},
        lambda rows, columns: {"weight": tensor("I64", rows, columns)},
    ],
)
def test_a_layout_that_is_not_known_is_not_guessed_at(matrix: Matrix, tmp_path: Path) -> None:
    with pytest.raises(CannotEstimateError, match=r"stored as|is not known"):
        _shape(tmp_path, TINY | {"num_hidden_layers": 1}, _experts(matrix, 0))


@pytest.mark.parametrize(
    "matrix",
    [
        lambda rows, columns: nvfp4_modelopt(rows, columns) | {"weight_scale": tensor("F8_E4M3", rows, 3)},
        lambda rows, columns: {"weight": tensor("BF16", rows, columns - 1)},
        lambda rows, columns: fp8_rows(rows, columns) | {"weight_scale": tensor("BF16", rows, 3)},
    ],
)
def test_bytes_that_the_configuration_does_not_explain_are_refused_with_both_counts(
    matrix: Matrix, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match="routed experts of layer 0") as refused:
        _shape(tmp_path, TINY | {"num_hidden_layers": 1}, _experts(matrix, 0))
    assert refused.value.numbers["declared_bytes"] != refused.value.numbers["actual_bytes"]
