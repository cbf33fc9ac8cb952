"""Model folders are read once, and again as soon as anything in them is another one."""

import os
from pathlib import Path

import pytest

from app.core import shape_cache
from app.core.shape_cache import ShapeCache
from engine.contract.checkpoint import read_shape
from engine.contract.errors import ModelFolderError
from engine.contract.shape import ModelShape
from tests.support.hollow_model import hollow_mixtral


class Reader:
    """Counts how often folders are read."""

    def __init__(self) -> None:
        self.read: list[Path] = []

    def __call__(self, folder: Path) -> ModelShape:
        self.read.append(folder)
        return read_shape(folder)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return hollow_mixtral(tmp_path / "model")


def test_a_folder_is_read_once_also_by_the_next_start(model: Path, tmp_path: Path) -> None:
    reader = Reader()
    first = ShapeCache(tmp_path / "shapes.json", reader).read_shape(model)
    again = ShapeCache(tmp_path / "shapes.json", reader).read_shape(model)
    assert first == again == read_shape(model)
    assert reader.read == [model]


def test_a_file_that_changed_is_read_again(model: Path, tmp_path: Path) -> None:
    reader = Reader()
    cache = ShapeCache(tmp_path / "shapes.json", reader)
    cache.read_shape(model)
    config = model / "config.json"
    config.write_text(
        config.read_text("utf-8").replace('"max_position_embeddings": 8192', '"max_position_embeddings": 4096')
    )
    assert cache.read_shape(model).max_context_tokens == 4096
    os.utime(model / "model.safetensors", (1, 1))
    cache.read_shape(model)
    (model / "more.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    cache.read_shape(model)
    assert len(reader.read) == 4


def test_a_folder_that_was_forgotten_is_read_again_and_the_others_are_not(model: Path, tmp_path: Path) -> None:
    reader = Reader()
    cache = ShapeCache(tmp_path / "shapes.json", reader)
    other = hollow_mixtral(tmp_path / "other")
    for folder in (model, other):
        cache.read_shape(folder)
    cache.forget(model)
    cache.forget(tmp_path / "never read")
    for folder in (other, model):
        cache.read_shape(folder)
    assert reader.read == [model, other, model]


def test_other_code_reads_anew(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    cache = ShapeCache(tmp_path / "shapes.json", reader)
    cache.read_shape(model)
    monkeypatch.setattr(shape_cache, "_reader", lambda: "another version")
    cache.read_shape(model)
    cache.read_shape(model)
    assert len(reader.read) == 2


def test_a_folder_that_cannot_be_read_is_not_kept(model: Path, tmp_path: Path) -> None:
    cache = ShapeCache(tmp_path / "shapes.json")
    whole = (model / "config.json").read_text("utf-8")
    (model / "config.json").write_text("{", "utf-8")
    with pytest.raises(ModelFolderError):
        cache.read_shape(model)
    (model / "config.json").write_text(whole, "utf-8")
    assert cache.read_shape(model) == read_shape(model)
    with pytest.raises(ModelFolderError):
        cache.read_shape(tmp_path / "nothing")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 1, "reader": "x", "entries": 3}', "\x00"])
def test_a_cache_that_is_damaged_or_cannot_be_written_is_none(content: str, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "shapes.json"
    file.write_text(content, "utf-8")
    assert ShapeCache(file).read_shape(model) == read_shape(model)
    (tmp_path / "taken").write_text("", "utf-8")
    assert ShapeCache(tmp_path / "taken" / "shapes.json").read_shape(model) == read_shape(model)


def test_only_the_newest_folders_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_cache, "KEPT_FOLDERS", 2)
    reader = Reader()
    cache = ShapeCache(tmp_path / "shapes.json", reader)
    one, two, three = (hollow_mixtral(tmp_path / name) for name in ("one", "two", "three"))
    for folder in (one, two, three, two, one):
        cache.read_shape(folder)
    assert reader.read == [one, two, three, one]
