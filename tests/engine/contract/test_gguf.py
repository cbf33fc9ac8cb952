"""GGUF files: exact bytes from the tensor table, the shape from the metadata, and every kind of damage by name."""

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.contract.checkpoint import read_shape, resolve_model_folder
from engine.contract.errors import CannotEstimateError, ModelFileError, ModelFolderError, UnsupportedModelError
from engine.contract.estimate import bank_bytes, banks, kv_bytes_per_token
from engine.contract.formats import GGUF_BLOCKS, WeightFormat
from engine.contract.gguf_files import gguf_files
from engine.contract.gguf_headers import GGUF_TYPES, read_gguf
from tests.support.model_configs import QWEN3_30B, QWEN35_35B, shape_of
from tests.support.weight_files import gguf_header, gguf_text, gguf_value, write_gguf

Metadata = dict[str, Any]
Tensors = dict[str, tuple[str, tuple[int, ...]]]

LAYERS, M, F, E, VOCAB = 48, 2048, 768, 128, 151936
QWEN3: Metadata = {
    "general.architecture": "qwen3moe", "general.name": "Qwen3 30B A3B", "qwen3moe.block_count": LAYERS,
    "qwen3moe.context_length": 40960, "qwen3moe.embedding_length": M, "qwen3moe.feed_forward_length": 6144,
    "qwen3moe.attention.head_count": 32, "qwen3moe.attention.head_count_kv": 4,
    "qwen3moe.attention.key_length": 128, "qwen3moe.attention.value_length": 128,
    "qwen3moe.expert_count": E, "qwen3moe.expert_used_count": 8, "qwen3moe.expert_feed_forward_length": F,
    "tokenizer.ggml.tokens": ["a", "b", "ü"] * 2000, "tokenizer.ggml.scores": [0.0] * 6000,
    "tokenizer.chat_template": "x" * 9000,
}  # fmt: skip


def _experts(layer: int, up: str, down: str, sizes: tuple[int, int, int] = (M, F, E)) -> Tensors:
    width, inner, experts = sizes
    return {
        f"blk.{layer}.ffn_gate_exps.weight": (up, (width, inner, experts)),
        f"blk.{layer}.ffn_up_exps.weight": (up, (width, inner, experts)),
        f"blk.{layer}.ffn_down_exps.weight": (down, (inner, width, experts)),
    }


DENSE: Tensors = {
    "token_embd.weight": ("Q4_K", (M, VOCAB)),
    "output.weight": ("Q6_K", (M, VOCAB)),
    "output_norm.weight": ("F32", (M,)),
}
DENSE_BYTES = 2 * (2 * M * VOCAB + M)  # unpacked to bf16


def _q4_k_m() -> Tensors:
    """As a common mixture does it: every other layer has its down projection in six bits."""
    found = dict(DENSE)
    for layer in range(LAYERS):
        found |= _experts(layer, "Q4_K", "Q6_K" if layer % 2 else "Q4_K")
    return found


def test_e17_a_mixed_file_gives_each_layer_its_own_bytes(tmp_path: Path) -> None:
    write_gguf(tmp_path / "Qwen3-30B-A3B-Q4_K_M.gguf", QWEN3, _q4_k_m())
    shape = read_shape(tmp_path)
    matrix = E * M * F // 256
    assert banks(shape) == (3 * matrix * 144, matrix * (2 * 144 + 210)) * 24
    assert shape.dense_bytes == DENSE_BYTES
    assert (shape.source, shape.container, shape.name) == ("headers", "gguf", "Qwen3-30B-A3B-Q4_K_M")
    assert shape.expert_format is WeightFormat.Q4_K
    assert shape.stored_as == "q4_k and q6_k"
    assert shape.not_runnable is None


def test_the_shape_is_that_of_the_same_model_with_config_json(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.gguf", QWEN3, {**DENSE, **_all("BF16")})
    found = read_shape(tmp_path / "model.gguf")
    config = shape_of(QWEN3_30B | {"torch_dtype": "bfloat16", "vocab_size": VOCAB}, tmp_path / "config")
    assert found.layers == config.layers
    assert found.experts == config.experts
    assert banks(found) == banks(config)
    assert kv_bytes_per_token(found) == 98_304
    assert (found.hidden_size, found.vocab_size, found.max_context_tokens) == (M, VOCAB, 40_960)
    assert found.not_runnable is None


def _all(kind: str) -> Tensors:
    return {name: what for layer in range(LAYERS) for name, what in _experts(layer, kind, kind).items()}


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
        tensors |= _experts(0, "Q8_0", "Q8_0", (width, inner, experts))
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
        tensors |= _experts(layer, "MXFP4", "MXFP4", (2880, 2880, 128))
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
        tensors |= _experts(layer, "Q8_0", "Q8_0", (256, 256, 4))
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    shape = read_shape(tmp_path)
    assert (len(shape.layers), shape.moe_layers) == (2, (1,))
    assert shape.dense_bytes == 4 * 256 * 10


def _parts(folder: Path, count: int) -> list[Path]:
    files = []
    tensors = _q4_k_m()
    per_part = -(-len(tensors) // count)
    for number in range(count):
        own = dict(list(tensors.items())[number * per_part : (number + 1) * per_part])
        split = {"split.no": number, "split.count": count, "split.tensors.count": len(tensors)}
        file = folder / f"Big-Q4-{number + 1:05}-of-{count:05}.gguf"
        write_gguf(file, {**QWEN3, **split} if number == 0 else split, own)
        files.append(file)
    return files


def test_a_model_in_parts_is_one_model(tmp_path: Path) -> None:
    files = _parts(tmp_path, 3)
    shape = read_shape(tmp_path)
    assert shape.name == "Big-Q4"
    assert shape == read_shape(files[1])
    assert shape.dense_bytes == DENSE_BYTES


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    files = _parts(tmp_path, 3)
    files[1].unlink()
    with pytest.raises(ModelFileError, match=r"Big-Q4-00002-of-00003\.gguf is missing: the model has 3 parts"):
        read_shape(tmp_path)


def test_parts_that_hold_fewer_tensors_than_declared_are_refused(tmp_path: Path) -> None:
    files = _parts(tmp_path, 2)
    write_gguf(files[1], {"split.no": 1, "split.count": 2}, {"other.weight": ("F32", (4,))})
    with pytest.raises(ModelFileError, match="declares 147 tensors in all parts; they hold 75"):
        read_shape(tmp_path)


def test_several_models_in_a_folder_are_asked_about(tmp_path: Path) -> None:
    for name in ("a-Q4.gguf", "a-Q8.gguf", "mmproj-F16.gguf"):
        write_gguf(tmp_path / name, QWEN3, DENSE)
    with pytest.raises(ModelFolderError, match="2 GGUF models") as refused:
        read_shape(tmp_path)
    assert "a-Q4.gguf, a-Q8.gguf" in refused.value.fix
    assert gguf_files(tmp_path / "a-Q8.gguf") == (tmp_path / "a-Q8.gguf",)
    assert resolve_model_folder(tmp_path / "a-Q8.gguf") == tmp_path / "a-Q8.gguf"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param({"general.architecture": "qwen3"}, "not a Mixture-of-Experts", id="no experts"),
        pytest.param({"general.architecture": None}, "general.architecture", id="no architecture"),
        pytest.param({"qwen3moe.block_count": None}, "qwen3moe.block_count", id="no layers"),
        pytest.param({"qwen3moe.block_count": 10**12}, "not believed", id="too many layers"),
        pytest.param({"qwen3moe.attention.head_count_kv": [4, 4, 8]}, "layers their own", id="heads differ"),
        pytest.param({"qwen3moe.attention.value_length": 64}, "another head size", id="values differ"),
        pytest.param({"qwen3moe.attention.head_count_kv": None}, "num_key_value_heads", id="no KV heads"),
        pytest.param({"qwen3moe.expert_feed_forward_length": None}, "moe_intermediate_size", id="no width"),
    ],
)
def test_a_missing_or_odd_fact_is_named(change: Metadata, match: str, tmp_path: Path) -> None:
    metadata = {key: value for key, value in {**QWEN3, **change}.items() if value is not None}
    write_gguf(tmp_path / "m.gguf", metadata, _q4_k_m())
    with pytest.raises((CannotEstimateError, UnsupportedModelError), match=match):
        read_shape(tmp_path)


def test_an_architecture_that_is_not_in_the_table_is_said(tmp_path: Path) -> None:
    metadata = {"general.architecture": "llama4", "llama4.expert_count": 16, "llama4.block_count": 48}
    write_gguf(tmp_path / "m.gguf", metadata, DENSE)
    with pytest.raises(CannotEstimateError, match="llama4") as refused:
        read_shape(tmp_path)
    assert "qwen3moe" in refused.value.fix


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        pytest.param(_experts(0, "Q4_K", "Q4_K", (M, F, E - 1)), "describes 2048 × 768 × 128|768 × 2048", id="experts"),
        pytest.param({"blk.0.ffn_up_exps.weight": ("Q4_K", (M, F, E))}, "down weights", id="no down"),
        pytest.param(_experts(0, "I8", "Q4_K"), "stored as I8", id="no weights"),
        pytest.param(_experts(1, "Q4_K", "Q4_K"), "describes routed experts in 1 layers", id="another layer"),
    ],
)
def test_experts_that_do_not_match_the_metadata_are_refused(tensors: Tensors, match: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", QWEN3 | {"qwen3moe.block_count": 1}, {**DENSE, **tensors})
    with pytest.raises((ModelFileError, CannotEstimateError), match=match):
        read_shape(tmp_path)


def test_t19_a_truncated_file_is_refused_with_both_lengths(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    length = write_gguf(file, {"general.architecture": "qwen3moe"}, {"a.weight": ("F32", (1024,))})
    with file.open("r+b") as stream:
        stream.truncate(length - 1000)
    with pytest.raises(ModelFileError, match="1,000 B short") as refused:
        read_shape(tmp_path)
    assert refused.value.numbers == {"file": "m.gguf", "declared_bytes": length, "actual_bytes": length - 1000}


def test_t19_a_longer_file_is_refused_but_padding_is_none(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    length = write_gguf(file, QWEN3, {"a.weight": ("F32", (5,))})  # 20 B, padded to 32
    assert read_gguf((file,)).tensors["a.weight"].nbytes == 20
    with file.open("r+b") as stream:
        stream.truncate(length - 12)
    assert read_gguf((file,)).tensors["a.weight"].nbytes == 20
    with file.open("r+b") as stream:
        stream.truncate(length + 7)
    with pytest.raises(ModelFileError, match="7 B too long"):
        read_gguf((file,))


HEAD = b"GGUF" + struct.pack("<I", 3)
ONE = gguf_text("a") + struct.pack("<IQIQ", 1, 4, 0, 0)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        pytest.param(b"", "0 B", id="empty"),
        pytest.param(b"GGML" + bytes(60), "does not begin with GGUF", id="magic"),
        pytest.param(b"GGUF" + struct.pack(">I", 3) + bytes(60), "big-endian", id="big-endian"),
        pytest.param(b"GGUF" + struct.pack("<I", 1) + bytes(60), "version 1", id="version"),
        pytest.param(HEAD + struct.pack("<QQ", 1 << 63, 0), "tensors; more than", id="endless tensors"),
        pytest.param(HEAD + struct.pack("<QQ", 400_000, 0), "header alone", id="more tensors than bytes"),
        pytest.param(HEAD + struct.pack("<QQ", 0, 1 << 40), "metadata pairs", id="endless metadata"),
        pytest.param(HEAD + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 1 << 60) + bytes(20), "a name of", id="key"),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + gguf_text("k") + struct.pack("<IIQ", 9, 8, 1 << 50), "words", id="list"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + gguf_text("k") + struct.pack("<IIQ", 9, 4, 1 << 50), "alone", id="numbers"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + gguf_text("k") + struct.pack("<IIQQ", 9, 8, 1, 1 << 62),
            "header alone",
            id="word",
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + gguf_text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 40,
            "list holds values",
            id="lists of lists",
        ),
        pytest.param(HEAD + struct.pack("<QQ", 0, 1) + gguf_text("k") + struct.pack("<I", 77), "type 77", id="type"),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + struct.pack("<Q", 2) + b"\xff\xfe" + gguf_value(1), "UTF-8", id="UTF-8"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 2) + (gguf_text("k") + gguf_value(1)) * 2, "appears twice", id="key twice"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 0, 1) + gguf_text("general.alignment") + gguf_value(0), "alignment", id="align"
        ),
        pytest.param(HEAD + struct.pack("<QQ", 2, 0) + ONE * 2 + bytes(60), "appears twice", id="tensor twice"),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + gguf_text("a") + struct.pack("<I9Q", 9, *range(9)), "9 sizes", id="sizes"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + gguf_text("a") + struct.pack("<IQIQ", 1, 4, 5, 0), "type 5", id="kind"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + gguf_text("a") + struct.pack("<IQIQ", 1, 4, 12, 0),
            "rows of 4",
            id="block",
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + gguf_text("a") + struct.pack("<IQIQ", 1, 4, 0, 3), "no multiple", id="odd"
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + gguf_text("a") + struct.pack("<IQIQ", 1, 4, 0, 64) + bytes(200),
            "unused",
            id="gap",
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 2, 0) + ONE + gguf_text("b") + struct.pack("<IQIQ", 1, 4, 0, 0) + bytes(99),
            "over each other",
            id="overlap",
        ),
        pytest.param(
            HEAD + struct.pack("<QQ", 1, 0) + gguf_text("a") + struct.pack("<IQQIQ", 2, 1 << 62, 1 << 62, 0, 0),
            "short",
            id="endless tensor",
        ),
    ],
)
def test_a_damaged_header_is_refused_by_name(content: bytes, match: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelFileError, match=match) as refused:
        read_shape(tmp_path)
    assert "bad.gguf" in refused.value.sentence


def test_every_place_a_header_can_end_too_early_is_refused(tmp_path: Path) -> None:
    head, _ = gguf_header({"general.architecture": "x", "words": ["a", "bc"]}, {"a.weight": ("F32", (5,))})
    file = tmp_path / "bad.gguf"
    for length in range(len(head)):
        file.write_bytes(head[:length])
        with pytest.raises(ModelFileError, match=r"bad\.gguf"):
            read_gguf((file,))


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
        tensors |= _experts(layer, "IQ2_XXS", "Q3_K", (7168, 2048, 256))
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
        tensors |= _experts(layer, "Q4_K", "Q4_K", (2048, 512, 256))
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
