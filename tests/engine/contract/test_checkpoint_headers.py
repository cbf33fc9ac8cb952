"""T18 and T19: weight files are checked before anything is allocated, and every refusal names the file."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.contract.checkpoint import read_headers
from engine.contract.checkpoint_headers import INDEX_NAME, MAX_HEADER_BYTES
from engine.contract.checkpoint_json import read_index
from engine.contract.errors import ModelFileError

Table = dict[str, tuple[str, list[int], int]]  # name -> dtype, shape, bytes


def _write(file: Path, tensors: Table, *, cut: int = 0, extra: int = 0, header: bytes | None = None) -> int:
    """Write a safetensors file; returns its full length."""
    offset, entries = 0, {}
    for name, (dtype, shape, size) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode() if header is None else header
    data = struct.pack("<Q", len(raw)) + raw + bytes(offset)
    file.write_bytes(data[: len(data) - cut] + bytes(extra))
    return len(data)


TWO: Table = {"a": ("F32", [2, 3], 24), "b": ("BF16", [8], 16)}


def test_the_table_gives_absolute_offsets_that_hold_the_bytes(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    length = _write(file, TWO)
    data = bytearray(file.read_bytes())
    data[-16:] = b"x" * 16
    file.write_bytes(data)
    table = read_headers(tmp_path)
    entry = table["b"]
    assert (entry.dtype, entry.shape, entry.nbytes, entry.values) == ("BF16", (8,), 16, 8)
    assert table["a"].offset + 24 == entry.offset == length - 16
    assert file.read_bytes()[entry.offset : entry.offset + entry.nbytes] == b"x" * 16


def test_shards_are_found_through_the_index(tmp_path: Path) -> None:
    _write(tmp_path / "one.safetensors", {"a": TWO["a"]})
    _write(tmp_path / "two.safetensors", {"b": TWO["b"]})
    _write(tmp_path / "stray.safetensors", {"a": TWO["a"]})
    (tmp_path / INDEX_NAME).write_text(
        json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}), "utf-8"
    )
    table = read_headers(tmp_path)
    assert {name: entry.file.name for name, entry in table.items()} == {"a": "one.safetensors", "b": "two.safetensors"}


def test_what_macos_leaves_beside_copied_shards_is_no_shard(tmp_path: Path) -> None:
    for name, part in (("one.safetensors", "a"), ("two.safetensors", "b")):
        _write(tmp_path / name, {part: TWO[part]})
        (tmp_path / f"._{name}").write_bytes(b"\x00\x05\x16\x07" + bytes(4092))
    assert len(read_headers(tmp_path)) == 2


def test_t18e_a_missing_shard_is_named(tmp_path: Path) -> None:
    _write(tmp_path / "one.safetensors", {"a": TWO["a"]})
    (tmp_path / INDEX_NAME).write_text(
        json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}), "utf-8"
    )
    with pytest.raises(ModelFileError, match=r"two\.safetensors is missing") as refused:
        read_headers(tmp_path)
    assert refused.value.numbers["file"] == "two.safetensors"


def test_t19_a_truncated_shard_is_refused_with_both_lengths(tmp_path: Path) -> None:
    length = _write(tmp_path / "model.safetensors", {"a": ("F32", [1024], 4096)}, cut=1000)
    with pytest.raises(ModelFileError, match="1,000 B short") as refused:
        read_headers(tmp_path)
    assert refused.value.numbers == {
        "file": "model.safetensors",
        "declared_bytes": length,
        "actual_bytes": length - 1000,
    }


def test_t19_a_longer_file_is_refused_too(tmp_path: Path) -> None:
    _write(tmp_path / "model.safetensors", TWO, extra=7)
    with pytest.raises(ModelFileError, match="7 B too long"):
        read_headers(tmp_path)


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, 1 << 63, 5000])
def test_a_hostile_header_length_is_refused_without_reading_it(length: int, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        read_headers(tmp_path)


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_a_file_too_short_for_a_header_length_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelFileError, match=f"has {len(content)} B"):
        read_headers(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"not json", id="no JSON"),
        pytest.param(b"[1, 2]", id="no table"),
        pytest.param(b'{"a": {"dtype": "F32", "shape": [1]}}', id="no offsets"),
        pytest.param(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}', id="backwards"),
        pytest.param(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}', id="negative size"),
        pytest.param(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', id="bytes do not match"),
        pytest.param(b'{"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}}', id="half a row"),
        pytest.param(
            b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},'
            b' "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}',
            id="twice",
        ),
        pytest.param(
            b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},'
            b' "\\u0061": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}',
            id="twice, once in disguise",
        ),
        pytest.param(b'{"a": {"dtype": "F32", "dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}', id="two types"),
        pytest.param(
            b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1], "x": 1, "x": 2}}', id="an unknown word twice"
        ),
        pytest.param(
            b'{"__metadata__": {"format": "pt", "format": "tf"},'
            b' "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}',
            id="metadata twice",
        ),
        pytest.param(
            b'{"a": {"dtype": "U8", "shape": [true], "data_offsets": [0, 1]},'
            b' "b": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}',
            id="true is no size",
        ),
        pytest.param(b"[" * 100_000, id="nested without end"),
    ],
)
def test_a_damaged_header_is_refused(header: bytes, tmp_path: Path) -> None:
    _write(tmp_path / "model.safetensors", {}, header=header)
    with pytest.raises(ModelFileError, match=r"header of model\.safetensors is damaged"):
        read_headers(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({"__metadata__": {"format": "pt"}}, id="with metadata"),
        pytest.param({"__metadata__": {"dtype": "\u00e4", "shape": "{}", "data_offsets": "x"}}, id="words in metadata"),
        pytest.param({"__metadata__": {}}, id="empty metadata"),
        pytest.param({}, id="without metadata"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("indent", [None, 1])
def test_what_stands_beside_the_tensors_changes_none_of_them(
    header: dict[str, Any], first: bool, indent: int | None, tmp_path: Path
) -> None:
    entry: dict[str, Any] = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    tensors = {"a": entry, "dtype": entry | {"data_offsets": [4, 8]}}
    text = json.dumps({**header, **tensors} if first else {**tensors, **header}, indent=indent).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    assert {name: (one.offset, one.nbytes) for name, one in read_headers(tmp_path).items()} == {
        "a": (8 + len(text), 4),
        "dtype": (12 + len(text), 4),
    }


@pytest.mark.parametrize("indent", [None, 2])
def test_an_index_of_many_tensors_names_the_same_files_however_it_is_laid_out(
    indent: int | None, tmp_path: Path
) -> None:
    names = {f"model.layers.{number}.\u00e4.weight": f"part-{number % 7}.safetensors" for number in range(30_000)}
    file = tmp_path / INDEX_NAME
    file.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": names}, indent=indent), "utf-8")
    assert read_index(file) == tuple(f"part-{number}.safetensors" for number in range(7))
    damaged = file.read_text("utf-8").replace('"part-3.safetensors"', "3", 1)
    file.write_text(damaged, "utf-8")
    with pytest.raises(ModelFileError, match="not an index"):
        read_index(file)


def test_tensors_that_lie_over_each_other_are_refused(tmp_path: Path) -> None:
    entry: dict[str, Any] = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    header = json.dumps({"a": entry, "b": entry | {"data_offsets": [2, 6]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(6))
    with pytest.raises(ModelFileError, match="over each other"):
        read_headers(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "one.safetensors", TWO)
    _write(tmp_path / "two.safetensors", {"b": TWO["b"]})
    with pytest.raises(ModelFileError, match=r"b is in both one\.safetensors and two\.safetensors"):
        read_headers(tmp_path)


@pytest.mark.parametrize("index", ["{}", "[]", '{"weight_map": 3}', "not json"])
def test_a_damaged_index_is_refused(index: str, tmp_path: Path) -> None:
    (tmp_path / INDEX_NAME).write_text(index, "utf-8")
    with pytest.raises(ModelFileError, match="not an index"):
        read_headers(tmp_path)


def test_an_index_may_not_point_outside_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / INDEX_NAME).write_text('{"weight_map": {"a": "../secret.safetensors"}}', "utf-8")
    with pytest.raises(ModelFileError, match="outside of the folder"):
        read_headers(tmp_path)


def test_a_folder_without_weights_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no \.safetensors file"):
        read_headers(tmp_path)
