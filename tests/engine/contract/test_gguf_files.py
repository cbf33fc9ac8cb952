"""Which GGUF files are one model, and what is said where they are not."""

from pathlib import Path

import pytest

from engine.contract.checkpoint import read_shape, resolve_model_folder
from engine.contract.errors import ModelFileError, ModelFolderError
from engine.contract.gguf_files import gguf_files
from tests.support.gguf_qwen3 import DENSE, DENSE_BYTES, QWEN3, q4_k_m
from tests.support.weight_files import write_gguf


def _parts(folder: Path, count: int) -> list[Path]:
    files = []
    tensors = q4_k_m()
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


def test_what_macos_leaves_beside_a_copied_file_is_no_other_model(tmp_path: Path) -> None:
    _parts(tmp_path, 1)[0].rename(tmp_path / "Big.gguf")
    (tmp_path / "._Big.gguf").write_bytes(b"\x00\x05\x16\x07" + bytes(4092))
    assert read_shape(tmp_path).name == "Big"


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
