"""Whatever lies in a model folder, the answer is a shape or an error with a sentence and a fix: never another
exception, never much memory. 5,000 changed folders, and the worst ones by hand."""

import json
import os
import shutil
import struct
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.contract.checkpoint import read_shape
from engine.contract.checkpoint_json import MAX_CONFIG_BYTES, MAX_INDEX_BYTES
from engine.contract.errors import ModelFileError, ModelFolderError, SplitpinError
from engine.contract.estimate import banks, kv_bytes_per_token, kv_cache_bytes, slot_bytes
from engine.contract.shape import ModelShape
from engine.contract.units import MIB
from tests.support.hostile import HOSTILE
from tests.support.model_configs import QWEN3_30B, folder_with
from tests.support.weight_files import tensor, write_safetensors

MOST_BYTES = 64 * MIB

hostile = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # the same folders each time
seeds = st.integers(0, (1 << 64) - 1)


def answer(folder: Path) -> ModelShape | SplitpinError:
    """What is read of a folder; everything a caller would do with it must work too."""
    try:
        shape = read_shape(folder)
    except SplitpinError as error:
        assert error.sentence.strip()
        assert error.fix.strip()
        assert len(error.sentence) < 1000
        assert json.loads(error.problem.model_dump_json())["kind"] == error.kind
        return error
    assert ModelShape.model_validate_json(shape.model_dump_json()) == shape
    assert len(banks(shape)) == len(shape.moe_layers) > 0
    assert min(banks(shape)) > 0
    assert 0 < slot_bytes(shape) <= max(banks(shape))
    assert 0 <= kv_bytes_per_token(shape) <= kv_cache_bytes(shape, shape.max_context_tokens)
    assert shape.stored_as
    return shape


def _answer_to(kind: str, seed: int) -> ModelShape | SplitpinError:
    with tempfile.TemporaryDirectory(prefix="splitpin-hostile-") as folder:
        HOSTILE[kind](Path(folder), Random(seed))
        return answer(Path(folder))


@given(seeds)
@settings(hostile, max_examples=2500)
def test_2500_changed_configurations_get_an_answer(seed: int) -> None:
    _answer_to("config", seed)


@given(seeds)
@settings(hostile, max_examples=1500)
def test_1500_changed_safetensors_folders_get_an_answer(seed: int) -> None:
    _answer_to("safetensors", seed)


@given(seeds)
@settings(hostile, max_examples=1000)
def test_1000_changed_gguf_files_get_an_answer(seed: int) -> None:
    _answer_to("gguf", seed)


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_changes_reach_beyond_the_first_check(kind: str) -> None:
    """Both answers occur, and errors of several kinds: else the 5,000 folders would test little."""
    answers = [_answer_to(kind, seed) for seed in range(150)]
    assert any(isinstance(found, ModelShape) for found in answers)
    assert len({found.sentence[:40] for found in answers if isinstance(found, SplitpinError)}) > 8


@pytest.fixture
def measured() -> Iterator[None]:
    """The test may not have more than 64 MiB allocated at any moment, nor ask for more at once."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_answer_takes_more_than_64_mib(kind: str, measured: None) -> None:
    for seed in range(100):
        _answer_to(kind, seed)


def _fill(unit: bytes, size: int, opening: bytes, closing: bytes) -> bytes:
    return opening + unit * ((size - len(opening) - len(closing)) // len(unit)) + closing


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(_fill(b"[],", MAX_CONFIG_BYTES, b'{"a":[', b"0]}"), id="empty lists"),
        pytest.param(_fill(b"{},", MAX_CONFIG_BYTES, b'{"a":[', b"0]}"), id="empty tables"),
        pytest.param(_fill(b'{"":0},', MAX_CONFIG_BYTES, b'{"a":[', b"0]}"), id="tables"),
        pytest.param(_fill(b"[0],", MAX_CONFIG_BYTES, b'{"a":[', b"0]}"), id="lists"),
        pytest.param(_fill(b"0.5,", MAX_CONFIG_BYTES, b'{"a":[', b"0]}"), id="numbers"),
        pytest.param(_fill("ü".encode(), MAX_CONFIG_BYTES, b'{"a":"\xf0\x9f\x8d\x8e', b'"}'), id="text"),
        pytest.param(b"[" * MAX_CONFIG_BYTES, id="nested without end"),
        pytest.param(b'{"text_config":' * 1000 + b"{}" + b"}" * 1000, id="nested parts"),
        pytest.param(b'{"model_type":"qwen3_moe","num_hidden_layers":' + b"9" * 4000 + b"}", id="4,000 digits"),
        pytest.param(b'{"num_hidden_layers":' + b"9" * 1_000_000 + b"}", id="a million digits"),
    ],
)
def test_a_configuration_cannot_take_much_memory(content: bytes, tmp_path: Path, measured: None) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert isinstance(answer(tmp_path), SplitpinError)


def test_a_configuration_of_one_gigabyte_is_refused_unread(tmp_path: Path, measured: None) -> None:
    file = tmp_path / "config.json"
    file.touch()
    os.truncate(file, 1 << 30)
    with pytest.raises(ModelFolderError, match=r"1,073,741,824 B; more than 2,097,152 B") as refused:
        read_shape(tmp_path)
    assert refused.value.numbers["actual_bytes"] == 1 << 30


def test_an_index_of_one_gigabyte_is_refused_unread(tmp_path: Path, measured: None) -> None:
    folder_with(QWEN3_30B, tmp_path)
    file = tmp_path / "model.safetensors.index.json"
    file.touch()
    os.truncate(file, 1 << 30)
    with pytest.raises(ModelFileError, match=f"more than {MAX_INDEX_BYTES:,} B"):
        read_shape(tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(_fill(b"[],", 8 * MIB, b'{"a":[', b"0]}"), id="empty lists"),
        pytest.param(_fill(b'{"":0},', 8 * MIB, b'{"a":[', b"0]}"), id="tables"),
        pytest.param(_fill(b"0.5,", 8 * MIB, b'{"a":[', b"0]}"), id="numbers"),
        pytest.param(b"[" * 8 * MIB, id="nested without end"),
    ],
)
def test_a_header_cannot_take_much_memory(header: bytes, tmp_path: Path, measured: None) -> None:
    folder_with(QWEN3_30B, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ModelFileError, match=r"header of model\.safetensors is damaged"):
        read_shape(tmp_path)


@pytest.mark.parametrize("layers", [1025, 10**6, 10**30])
def test_layers_without_number_are_refused_before_they_are_built(layers: int, tmp_path: Path, measured: None) -> None:
    found = answer(folder_with(QWEN3_30B | {"num_hidden_layers": layers}, tmp_path))
    assert isinstance(found, SplitpinError)
    assert "num_hidden_layers" in found.sentence


@pytest.mark.parametrize("key", ["num_experts", "hidden_size", "head_dim", "vocab_size", "max_position_embeddings"])
@pytest.mark.parametrize("value", [(1 << 32) + 1, 10**30, -1, True, "48", 2.0, float("nan")])
def test_sizes_no_model_can_have_are_named(key: str, value: Any, tmp_path: Path) -> None:
    found = answer(folder_with(QWEN3_30B | {key: value}, tmp_path))
    assert isinstance(found, SplitpinError)
    assert key in found.sentence


def test_half_characters_are_refused_before_anything_must_print_them(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "\\ud800"}', "utf-8")
    assert isinstance(answer(tmp_path), ModelFolderError)


@pytest.mark.parametrize(
    "name", ["../one.safetensors", "..\\one.safetensors", "C:one.safetensors", "/one.safetensors", "..", "", "a\0b"]
)
def test_an_index_names_files_of_its_folder_only(name: str, tmp_path: Path) -> None:
    folder = folder_with(QWEN3_30B, tmp_path / "model")
    write_safetensors(tmp_path / "one.safetensors", {"a": tensor("BF16", 2)})
    index = {"weight_map": {"a": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    with pytest.raises(ModelFileError, match="outside of the folder"):
        read_shape(folder)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model.safetensors.index.json", "m.gguf"])
def test_links_that_lead_in_circles_are_refused(name: str, tmp_path: Path) -> None:
    folder = folder_with(QWEN3_30B, tmp_path) if name != "config.json" else tmp_path
    (folder / name).symlink_to(folder / "other")
    (folder / "other").symlink_to(folder / name)
    found = answer(folder)
    if name != "model.safetensors.index.json":
        assert isinstance(found, ModelFolderError | ModelFileError)
        assert name in found.sentence
    else:
        assert isinstance(found, ModelShape)  # as good as not there: config.json alone is read


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_shard_whose_blob_was_never_downloaded_is_named(tmp_path: Path) -> None:
    """In a download cache the files of a snapshot are links to blobs."""
    folder = folder_with(QWEN3_30B, tmp_path / "models--a--b" / "snapshots" / "abc")
    (folder / "model-00001-of-00002.safetensors").symlink_to("../../blobs/0123")
    with pytest.raises(ModelFileError, match=r"model-00001-of-00002\.safetensors is missing"):
        read_shape(tmp_path / "models--a--b")


@pytest.mark.parametrize("content", ["../../elsewhere", "..", "", "gone", "a\0b", "x" * 5000, "\udcff"])
def test_a_ref_that_names_no_snapshot_is_as_good_as_none(content: str, tmp_path: Path) -> None:
    folder_with(QWEN3_30B, tmp_path / "elsewhere")
    cache = tmp_path / "models--a--b"
    folder_with(QWEN3_30B, cache / "snapshots" / "abc")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_bytes(content.encode("utf-8", "surrogateescape"))
    found = answer(cache)
    assert isinstance(found, ModelShape)
    assert found.name == "b"
    shutil.rmtree(cache / "snapshots" / "abc")
    (cache / "snapshots" / "one").mkdir()
    (cache / "snapshots" / "two").mkdir()
    assert isinstance(answer(cache), ModelFolderError)


def test_folders_with_the_names_of_files_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert isinstance(answer(tmp_path), ModelFolderError)
    folder = folder_with(QWEN3_30B, tmp_path / "model")
    (folder / "model.safetensors").mkdir()
    found = answer(folder)
    assert isinstance(found, ModelFileError)
    assert "model.safetensors is missing" in found.sentence
