"""The list of models on the Split page, the chosen one, and what was read of its folder."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.core.library import Library, ModelEntry
from app.core.shape_cache import ShapeCache
from app.link.background import Background
from app.ui.notices import Notice
from engine.contract.changed_model import ModelChangedError
from engine.contract.errors import Problem, SplitpinError
from engine.contract.shape import ModelShape

ALTERED = "The model folder has changed since it was read; the split was planned again"


class ModelDesk(QObject):
    """Signals:
    chosen: another model was chosen, or the same one again (ModelEntry); its folder is being read.
    read: the folder of the chosen model was read: `shape` or `problem` is there.
    reported: there is something to say (Notice).
    """

    chosen = Signal(object)
    read = Signal()
    reported = Signal(object)

    def __init__(
        self,
        background: Background,
        shapes: ShapeCache,
        *,
        is_fixed: Callable[[], bool],
        parent: QObject | None = None,
    ) -> None:
        """`shapes` reads folders, in the background; `is_fixed`: an engine loads or stops, so its model stays."""
        super().__init__(parent)
        self._background = background
        self._shapes = shapes
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
        self._read(entry, lambda shape, error: self._got(entry, shape, error))
        return True

    def read_again(self) -> None:
        """Read the folder of the chosen model anew: somebody may have mended it."""
        if self.folder is not None:
            self._shapes.forget(self.folder)
        self.choose(self.folder)

    def engine_ended(self, problem: Problem | None) -> None:
        """An engine that found another model in the folder than was planned is a reason to read it again."""
        if problem is not None and problem.kind == ModelChangedError.kind:
            self.read_again()

    def look(self, then: Callable[[], None]) -> None:
        """See whether the folder is still what was read of it, take it if not, and go on with `then`."""
        entry, before = self.entry, self.shape
        if entry is None:
            then()
            return

        def seen(shape: ModelShape | None, error: SplitpinError | None) -> None:
            if shape != before and entry is self.entry:
                self._got(entry, shape, error)
                if shape is not None:
                    self.reported.emit(Notice("info", ALTERED, about=ALTERED))
            then()

        self._read(entry, seen)

    def _read(self, entry: ModelEntry, got: Callable[[ModelShape | None, SplitpinError | None], None]) -> None:
        self._background.run(
            lambda: self._shapes.read_shape(entry.folder),
            lambda shape: got(shape, None),
            lambda error: got(None, error),
        )

    def _got(self, entry: ModelEntry, shape: ModelShape | None, error: SplitpinError | None) -> None:
        if entry is not self.entry:
            return  # the user went on to another model
        self.shape, self.problem = shape, None if error is None else error.problem
        self.read.emit()
