"""GGUF files: exact bytes from the tensor table, the shape from the metadata."""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.contract.checkpoint import read_shape
from engine.contract.estimate import bank_bytes, banks, kv_bytes_per_token
from engine.contract.formats import GGUF_BLOCKS, WeightFormat
from engine.contract.gguf_headers import GGUF_TYPES, read_gguf
from tests.support.gguf_qwen3 import (
    DENSE,
    DENSE_BYTES,
    QWEN3,
    VOCAB,
    E,
    F,
    M,
    Tensors,
    all_experts,
    gguf_experts,
    q4_k_m,
)
from tests.support.model_configs import QWEN3_30B, QWEN35_35B, shape_of
from tests.support.weight_files import write_gguf


def test_e17_a_mixed_file_gives_each_layer_its_own_bytes(tmp_path: Path) -> None:
    write_gguf(tmp_path / "Qwen3-30B-A3B-Q4_K_M.gguf", QWEN3, q4_k_m())
    shape = read_shape(tmp_path)
    matrix = E * M * F // 256
    assert banks(shape) == (3 * matrix * 144, matrix * (2 * 144 + 210)) * 24
    assert shape.dense_bytes == DENSE_BYTES
    assert (shape.source, shape.container, shape.name) == ("headers", "gguf", "Qwen3-30B-A3B-Q4_K_M")
    assert shape.expert_format is WeightFormat.Q4_K
    assert shape.stored_as == "q4_k and q6_k"
    assert shape.not_runnable is None


def test_the_shape_is_that_of_the_same_model_with_config_json(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", QWEN3, {**DENSE, **all_experts("BF16")})
    found = read_shape(tmp_path / "model.gguf")
    config = shape_of(QWEN3_30B | {"torch_dtype": "bfloat16", "vocab_size": VOCAB}, tmp_path / "config")
    assert found.layers == config.layers
    assert found.experts == config.experts
    assert banks(found) == banks(config)
    assert kv_bytes_per_token(found) == 98_304
    assert (found.hidden_size, found.vocab_size, found.max_context_tokens) == (M, VOCAB, 40_960)
    assert found.not_runnable is None


def test_the_reader_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, engine.contract.checkpoint; print({'torch', 'numpy', 'gguf'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    for number, (name, weights, size) in GGUF_TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert kind.name == name
        assert gguf.GGML_QUANT_SIZES[kind] == (weights, size)
    for form, block in GGUF_BLOCKS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[form.value.upper()]] == block


def test_a_file_of_the_gguf_package_is_read_as_the_package_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(file, "qwen3moe")
    writer.add_block_count(1)
    writer.add_array("some.words", ["a", "b"])
    writer.add_array("some.numbers", [1, 2, 3])
    writer.add_bool("some.flag", True)
    writer.add_tensor("token_embd.weight", np.zeros((5, 3), dtype=np.float32))
    writer.add_tensor("blk.0.ffn_up_exps.weight", np.zeros((2, 4, 32), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = read_gguf((file,))
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    assert set(model.tensors) == set(theirs)
    for name, entry in model.tensors.items():
        assert (entry.offset, entry.nbytes) == (theirs[name].data_offset, theirs[name].n_bytes)
        assert list(entry.shape) == [int(size) for size in theirs[name].shape]
    assert model.metadata["some.numbers"] == (1, 2, 3)
    assert model.metadata["some.words"] is None
    assert model.metadata["some.flag"] is True
    assert model.metadata["qwen3moe.block_count"] == 1


@pytest.mark.parametrize("order", ["exps", "one by one"])
def test_mixtral_files_old_and_new(order: str, tmp_path: Path) -> None:
    width, inner, experts = 256, 512, 4
    metadata = {
        "general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 512,
        "llama.embedding_length": width, "llama.feed_forward_length": inner, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.rope.dimension_count": 64, "llama.expert_count": experts,
        "llama.expert_used_count": 2,
    }  # fmt: skip
    tensors: Tensors = {"token_embd.weight": ("Q8_0", (width, 100))}
    if order == "exps":
        tensors |= gguf_experts(0, "Q8_0", "Q8_0", (width, inner, experts))
    else:
        for expert in range(experts):
            for name, sizes in (("gate", (width, inner)), ("up", (width, inner)), ("down", (inner, width))):
                tensors[f"blk.0.ffn_{name}.{expert}.weight"] = ("Q8_0", sizes)
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    shape = read_shape(tmp_path)
    assert shape.family == "mixtral"
    assert banks(shape) == (3 * experts * width * inner // 32 * 34,)
    assert kv_bytes_per_token(shape) == 2 * 2 * 64 * 2


def test_t06_gpt_oss_with_biases(tmp_path: Path) -> None:
    arch = "gpt-oss"
    metadata = {
        "general.architecture": arch, f"{arch}.block_count": 2, f"{arch}.context_length": 131072,
        f"{arch}.embedding_length": 2880, f"{arch}.feed_forward_length": 2880,
        f"{arch}.expert_feed_forward_length": 2880, f"{arch}.attention.head_count": 64,
        f"{arch}.attention.head_count_kv": 8, f"{arch}.attention.key_length": 64,
        f"{arch}.attention.value_length": 64, f"{arch}.attention.sliding_window": 128,
        f"{arch}.expert_count": 128, f"{arch}.expert_used_count": 4,
    }  # fmt: skip
    tensors: Tensors = {"token_embd.weight": ("BF16", (2880, 201088))}
    for layer in range(2):
        tensors |= gguf_experts(layer, "MXFP4", "MXFP4", (2880, 2880, 128))
        for name in ("gate", "up", "down"):
            tensors[f"blk.{layer}.ffn_{name}_exps.bias"] = ("F32", (2880, 128))
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    shape = read_shape(tmp_path)
    assert banks(shape) == (128 * 3 * 2880 * 2880 // 32 * 17 + 128 * 8640 * 4,) * 2
    assert [layer.kv.window for layer in shape.layers if layer.kv] == [128, None]
    assert bank_bytes(shape.experts, WeightFormat.MXFP4) == 1_694_269_440  # the same with biases in bf16


def test_layers_that_only_guess_ahead_are_left_out(tmp_path: Path) -> None:
    arch = "glm4moe"
    metadata = {
        "general.architecture": arch, f"{arch}.block_count": 3, f"{arch}.nextn_predict_layers": 1,
        f"{arch}.context_length": 512, f"{arch}.embedding_length": 256, f"{arch}.feed_forward_length": 512,
        f"{arch}.expert_feed_forward_length": 256, f"{arch}.attention.head_count": 4,
        f"{arch}.attention.head_count_kv": 2, f"{arch}.attention.key_length": 64,
        f"{arch}.attention.value_length": 64, f"{arch}.expert_count": 4, f"{arch}.expert_used_count": 2,
        f"{arch}.expert_shared_count": 1, f"{arch}.leading_dense_block_count": 1,
    }  # fmt: skip
    tensors: Tensors = {"token_embd.weight": ("F32", (256, 10)), "blk.2.nextn.eh_proj.weight": ("F32", (512, 256))}
    for layer in (1, 2):
        tensors |= gguf_experts(layer, "Q8_0", "Q8_0", (256, 256, 4))
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    shape = read_shape(tmp_path)
    assert (len(shape.layers), shape.moe_layers) == (2, (1,))
    assert shape.dense_bytes == 4 * 256 * 10


@pytest.mark.parametrize("age", ["old", "new"])
def test_t07_latent_attention_from_a_gguf_file(age: str, tmp_path: Path) -> None:
    """Newer files describe one head of latents and keep the sizes of the real heads apart."""
    arch = "deepseek2"
    metadata = {
        "general.architecture": arch, f"{arch}.block_count": 61, f"{arch}.context_length": 163840,
        f"{arch}.embedding_length": 7168, f"{arch}.feed_forward_length": 18432,
        f"{arch}.expert_feed_forward_length": 2048, f"{arch}.attention.head_count": 128,
        f"{arch}.attention.head_count_kv": 128 if age == "old" else 1, f"{arch}.attention.kv_lora_rank": 512,
        f"{arch}.attention.q_lora_rank": 1536, f"{arch}.rope.dimension_count": 64, f"{arch}.expert_count": 256,
        f"{arch}.attention.key_length": 192 if age == "old" else 576,
        f"{arch}.attention.value_length": 128 if age == "old" else 512, f"{arch}.expert_used_count": 8,
        f"{arch}.expert_shared_count": 1, f"{arch}.leading_dense_block_count": 3,
    }  # fmt: skip
    if age == "new":
        metadata |= {f"{arch}.attention.key_length_mla": 192, f"{arch}.attention.value_length_mla": 128}
    tensors: Tensors = {"token_embd.weight": ("Q4_K", (7168, 129280))}
    for layer in range(3, 61):
        tensors |= gguf_experts(layer, "IQ2_XXS", "Q3_K", (7168, 2048, 256))
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    shape = read_shape(tmp_path)
    assert kv_bytes_per_token(shape) == 70_272
    assert shape.moe_layers == tuple(range(3, 61))
    assert banks(shape) == (256 * 7168 * 2048 // 256 * (66 + 66 + 110),) * 58


def test_t05_delta_nets_from_a_gguf_file(tmp_path: Path) -> None:
    arch = "qwen35moe"
    metadata = {
        "general.architecture": arch, f"{arch}.block_count": 40, f"{arch}.context_length": 262144,
        f"{arch}.embedding_length": 2048, f"{arch}.expert_feed_forward_length": 512,
        f"{arch}.expert_shared_feed_forward_length": 512, f"{arch}.attention.head_count": 16,
        f"{arch}.attention.head_count_kv": 2, f"{arch}.attention.key_length": 256,
        f"{arch}.attention.value_length": 256, f"{arch}.expert_count": 256, f"{arch}.expert_used_count": 8,
        f"{arch}.full_attention_interval": 4, f"{arch}.ssm.conv_kernel": 4, f"{arch}.ssm.state_size": 128,
        f"{arch}.ssm.group_count": 16, f"{arch}.ssm.time_step_rank": 32, f"{arch}.ssm.inner_size": 4096,
    }  # fmt: skip
    tensors: Tensors = {"token_embd.weight": ("Q8_0", (2048, 248320))}
    for layer in range(40):
        tensors |= gguf_experts(layer, "Q4_K", "Q4_K", (2048, 512, 256))
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    found = read_shape(tmp_path)
    sizes = {
        "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "shared_expert_intermediate_size": 512,
    }  # fmt: skip
    config = QWEN35_35B | {"text_config": QWEN35_35B["text_config"] | sizes}
    assert found.layers == shape_of(config, tmp_path / "config").layers
    assert kv_bytes_per_token(found) == 20_480
    assert banks(found) == (3 * 256 * 2048 * 512 // 256 * 144,) * 40
