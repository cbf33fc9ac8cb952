"""The list of model folders."""

import json
from pathlib import Path

import pytest

from app.core.library import DEMO_MARKER, DEMO_NAME, Library, is_complete
from engine.contract.errors import ModelFolderError


def _model(folder: Path, *, shards: int = 2, present: int | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}", "utf-8")
    names = [f"model-{number:05}.safetensors" for number in range(shards)]
    index = {"weight_map": {f"tensor{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    for name in names[:present]:
        (folder / name).write_bytes(b"")
    return folder


def test_the_demo_model_comes_first_once_its_folder_is_complete(tmp_path: Path) -> None:
    added = _model(tmp_path / "added")
    demo = tmp_path / "demo"
    library = Library((added,), demo)
    assert [entry.name for entry in library.entries] == ["added"]
    _model(demo)
    (demo / DEMO_MARKER).write_text("{}", "utf-8")
    assert [entry.name for entry in library.entries] == [DEMO_NAME, "added"]


def test_only_the_demo_model_is_called_that_and_wherever_it_lies(tmp_path: Path) -> None:
    namesake, moved = _model(tmp_path / "demo-model"), _model(tmp_path / "elsewhere")
    (moved / DEMO_MARKER).write_text("{}", "utf-8")
    assert [entry.name for entry in Library((namesake, moved)).entries] == ["demo-model", DEMO_NAME]


def test_a_folder_is_complete_when_every_file_of_its_index_is_there(tmp_path: Path) -> None:
    assert is_complete(_model(tmp_path / "whole"))
    assert not is_complete(_model(tmp_path / "half", shards=3, present=2))
    assert not is_complete(tmp_path / "absent")
    cut = _model(tmp_path / "cut")
    (cut / "model.safetensors.index.json").write_text('{"weight_map": {', "utf-8")
    assert not is_complete(cut)


def test_folders_are_added_once_and_removed_without_touching_files(tmp_path: Path) -> None:
    folder = _model(tmp_path / "model")
    library = Library().add(folder)
    assert library.add(folder) is library
    assert library.find(folder) is not None
    assert library.remove(folder).entries == ()
    assert (folder / "config.json").is_file()


def test_a_folder_that_cannot_be_a_model_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="There is no folder"):
        Library().add(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFolderError, match=r"no config\.json"):
        Library().add(tmp_path / "empty")


def test_a_folder_that_went_away_stays_in_the_list(tmp_path: Path) -> None:
    folder = _model(tmp_path / "model")
    library = Library().add(folder)
    (folder / "config.json").unlink()
    assert [entry.folder for entry in library.entries] == [folder]
