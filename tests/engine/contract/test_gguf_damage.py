"""Every kind of damage of a GGUF file by name: odd facts, experts that do not fit them, broken headers."""

import struct
from pathlib import Path

import pytest

from engine.contract.checkpoint import read_shape
from engine.contract.errors import CannotEstimateError, ModelFileError, UnsupportedModelError
from engine.contract.gguf_headers import read_gguf
from tests.support.gguf_qwen3 import DENSE, QWEN3, E, F, M, Metadata, Tensors, gguf_experts, q4_k_m
from tests.support.weight_files import gguf_header, gguf_text, gguf_value, write_gguf


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
    write_gguf(tmp_path / "m.gguf", metadata, q4_k_m())
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
        pytest.param(
            gguf_experts(0, "Q4_K", "Q4_K", (M, F, E - 1)), "describes 2048 × 768 × 128|768 × 2048", id="experts"
        ),
        pytest.param({"blk.0.ffn_up_exps.weight": ("Q4_K", (M, F, E))}, "down weights", id="no down"),
        pytest.param(gguf_experts(0, "I8", "Q4_K"), "stored as I8", id="no weights"),
        pytest.param(gguf_experts(1, "Q4_K", "Q4_K"), "describes routed experts in 1 layers", id="another layer"),
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
