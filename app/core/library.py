"""The list of model folders. Splitpin never moves, copies or deletes a model."""

import json
from dataclasses import dataclass
from pathlib import Path

from engine.contract.checkpoint import resolve_model_folder

DEMO_NAME = "demo model"
DEMO_MARKER = "demo.json"  # its recipe writes this file last


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model folder in the list."""

    folder: Path
    name: str

    @classmethod
    def of(cls, folder: Path) -> "ModelEntry":
        """A folder by its name; the demo model, wherever it lies, is called what it is."""
        name = DEMO_NAME if (folder / DEMO_MARKER).is_file() else folder.name or str(folder)
        return cls(folder, name)


@dataclass(frozen=True, slots=True)
class Library:
    """The folders the user added, in their order, behind the demo model."""

    folders: tuple[Path, ...] = ()
    demo_dir: Path | None = None

    @property
    def entries(self) -> tuple[ModelEntry, ...]:
        """The demo model first, if its folder is complete, then the user's folders, also those that are gone."""
        added = tuple(ModelEntry.of(folder) for folder in self.folders)
        if self.demo_dir is None or not is_complete(self.demo_dir) or self.demo_dir in self.folders:
            return added
        return (ModelEntry.of(self.demo_dir), *added)

    def find(self, folder: Path) -> ModelEntry | None:
        """The entry of a folder, or None."""
        return next((entry for entry in self.entries if entry.folder == folder), None)

    def add(self, folder: Path) -> "Library":
        """The library with one more folder; the same one if it is in the list already.

        Raises:
            ModelFolderError: there is no such folder, it holds no config.json, or several models.
        """
        folder = folder.expanduser().absolute()
        resolve_model_folder(folder)
        if self.find(folder) is not None:
            return self
        return Library((*self.folders, folder), self.demo_dir)

    def remove(self, folder: Path) -> "Library":
        """The library without a folder; the files stay where they are."""
        return Library(tuple(kept for kept in self.folders if kept != folder), self.demo_dir)


def is_complete(folder: Path) -> bool:
    """Whether a folder holds a configuration and every weight file that its index names."""
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(folder.glob("*.safetensors"))
    try:
        weight_map = json.loads(index.read_text("utf-8"))["weight_map"]
        files = {str(name) for name in weight_map.values()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False  # an index that cannot be read is an unfinished one
    return bool(files) and all((folder / name).is_file() for name in files)
