"""Reading tensor bytes into foreign memory: ranges, damage, progress."""

from pathlib import Path

import pytest

from engine.checkpoint.loader import TensorReader
from engine.checkpoint.meter import Meter
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import ModelFileError

CONTENT = bytes(range(256)) * 4


def _entry(folder: Path, nbytes: int = 1000, offset: int = 24) -> TensorEntry:
    file = folder / "model.safetensors"
    file.write_bytes(CONTENT)
    return TensorEntry(name="w", file=file, offset=offset, nbytes=nbytes, dtype="U8", shape=(nbytes,))


def _meter(told: list[int] | None = None) -> Meter:
    return Meter((told if told is not None else []).append, lambda: False)


def test_the_asked_range_arrives_in_the_given_memory(tmp_path: Path) -> None:
    entry = _entry(tmp_path)
    target = bytearray(10)
    with TensorReader(_meter()) as reader:
        reader.read_into(entry, memoryview(target), start=300)
    assert bytes(target) == CONTENT[324:334]


def test_a_range_beyond_the_tensor_is_refused(tmp_path: Path) -> None:
    entry = _entry(tmp_path, nbytes=100)
    with TensorReader(_meter()) as reader, pytest.raises(ValueError, match="the tensor has 100 B"):
        reader.read_into(entry, memoryview(bytearray(60)), start=50)


def test_a_file_that_was_cut_after_its_header_was_read_is_named(tmp_path: Path) -> None:
    entry = _entry(tmp_path)
    entry.file.write_bytes(CONTENT[:500])
    with (
        TensorReader(_meter()) as reader,
        pytest.raises(ModelFileError, match=r"model\.safetensors ended inside") as why,
    ):
        reader.read_into(entry, memoryview(bytearray(1000)))
    assert why.value.numbers["actual_bytes"] == 476


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    entry = _entry(tmp_path)
    entry.file.unlink()
    with TensorReader(_meter()) as reader, pytest.raises(ModelFileError, match=r"model\.safetensors could not be read"):
        reader.read_into(entry, memoryview(bytearray(10)))


def test_progress_is_told_at_most_so_often_and_counts_everything() -> None:
    now = [0.0]
    told: list[int] = []
    meter = Meter(told.append, lambda: False, per_s=10, clock=lambda: now[0])
    for _ in range(100):
        meter.add(5)
        now[0] += 0.01
    assert meter.done_bytes == 500
    assert 9 <= len(told) <= 11
    assert told == sorted(told)
