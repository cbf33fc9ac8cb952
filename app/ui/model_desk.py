"""The list of models on the Split page, the chosen one, and what was read of its folder."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.core.library import Library, ModelEntry
from app.link.background import Background
from engine.contract.errors import Problem, SplitpinError
from engine.contract.shape import ModelShape


class ModelDesk(QObject):
    """Signals:
    chosen: another model was chosen, or the same one again (ModelEntry); its folder is being read.
    read: the folder of the chosen model was read: `shape` or `problem` is there.
    """

    chosen = Signal(object)
    read = Signal()

    def __init__(
        self,
        background: Background,
        *,
        read_shape: Callable[[Path], ModelShape],
        is_fixed: Callable[[], bool],
        parent: QObject | None = None,
    ) -> None:
        """`read_shape` reads a folder, in the background; `is_fixed`: an engine runs, so its model stays."""
        super().__init__(parent)
        self._background = background
        self._read_shape = read_shape
        self._is_fixed = is_fixed
        self.entries: tuple[ModelEntry, ...] = ()  # the library looks at the disk to tell them
        self.entry: ModelEntry | None = None
        self.shape: ModelShape | None = None
        self.problem: Problem | None = None
        self._added: tuple[Path, ...] = ()

    @property
    def removable(self) -> bool:
        """The user put the chosen model into the list."""
        return self.folder in self._added

    @property
    def folder(self) -> Path | None:
        """Of the chosen model."""
        return None if self.entry is None else self.entry.folder

    def show_library(self, library: Library, current: Path | None) -> None:
        """Take another list and choose the model in `current`, or the first; an empty list has no chosen one."""
        self.entries, self._added = library.entries, library.folders
        if not self.entries:
            self.entry, self.shape, self.problem = None, None, None
        elif not self.choose(current):
            self.choose(self.entries[0].folder)

    def choose(self, folder: Path | None) -> bool:
        """Take another model; its folder is read in the background. False if it is not in the list."""
        entry = next((entry for entry in self.entries if entry.folder == folder), None)
        if entry is None or self._is_fixed():
            return entry is not None
        self.entry, self.shape, self.problem = entry, None, None
        self.chosen.emit(entry)
        self._background.run(
            lambda: self._read_shape(entry.folder),
            lambda shape: self._got(entry, shape, None),
            lambda error: self._got(entry, None, error),
        )
        return True

    def read_again(self) -> None:
        """Read the folder of the chosen model anew: somebody may have mended it."""
        self.choose(self.folder)

    def _got(self, entry: ModelEntry, shape: ModelShape | None, error: SplitpinError | None) -> None:
        if entry is not self.entry:
            return  # the user went on to another model
        self.shape, self.problem = shape, None if error is None else error.problem
        self.read.emit()
