"""What was read of model folders, kept by the files it was read from: headers of 190,000 tensors take a second or two.

An entry counts as long as every file of the folder has the size and the time it had, and Splitpin reads folders by the
same code. Anything else is read anew; a cache that cannot be read or written is none.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from app.files import write_atomically
from app.paths import program_dir
from engine.contract.checkpoint import read_shape, resolve_model_folder
from engine.contract.errors import ModelFolderError
from engine.contract.record import Record
from engine.contract.shape import ModelShape

log = logging.getLogger(__name__)

KEPT_FOLDERS = 32
_SUFFIXES = frozenset({".json", ".safetensors", ".gguf"})

Stamp = tuple[str, int, int]  # name, size in bytes, time of the last change in ns


class _Entry(Record):
    folder: str
    resolved: str
    files: tuple[Stamp, ...]
    shape: ModelShape


class _File(Record):
    version: Literal[1] = 1
    reader: str
    entries: tuple[_Entry, ...] = ()


class ShapeCache:
    """Reads model folders, each once. May be called from any thread, but not from one that must not wait."""

    def __init__(self, file: Path, read: Callable[[Path], ModelShape] = read_shape) -> None:
        self._file = file
        self._read = read
        self._one_at_a_time = threading.Lock()  # of the cache; folders are read at the same time

    def read_shape(self, folder: Path) -> ModelShape:
        """What `engine.contract.checkpoint.read_shape` says of a folder.

        Raises:
            ModelFolderError, ModelFileError, UnsupportedModelError, CannotEstimateError: as it says; nothing of a
                folder that cannot be read is kept.
        """
        before = _stamps(folder)
        if before is not None and (known := self._known(folder, before)) is not None:
            return known
        shape = self._read(folder)
        if before is not None and before == _stamps(folder):  # nobody wrote to it meanwhile
            self._keep(folder, before, shape)
        return shape

    def forget(self, folder: Path) -> None:
        """Read this folder anew, even if its files look as they did: an engine has found something else there."""
        with self._one_at_a_time:
            entries = self._load()
            others = tuple(kept for kept in entries if kept.folder != str(folder))
            if len(others) < len(entries):
                self._write(folder, others)

    def _known(self, folder: Path, now: tuple[str, tuple[Stamp, ...]]) -> ModelShape | None:
        with self._one_at_a_time:
            entries = self._load()
        found = (
            entry.shape for entry in entries if entry.folder == str(folder) and (entry.resolved, entry.files) == now
        )
        return next(found, None)

    def _keep(self, folder: Path, now: tuple[str, tuple[Stamp, ...]], shape: ModelShape) -> None:
        entry = _Entry(folder=str(folder), resolved=now[0], files=now[1], shape=shape)
        with self._one_at_a_time:
            others = [kept for kept in self._load() if kept.folder != entry.folder]
            self._write(folder, tuple([*others, entry][-KEPT_FOLDERS:]))

    def _write(self, folder: Path, entries: tuple[_Entry, ...]) -> None:
        try:
            write_atomically(self._file, _File(reader=_reader(), entries=entries).model_dump_json() + "\n")
        except OSError as cause:
            log.warning("what was read of %s could not be kept in %s: %s", folder, self._file, cause)

    def _load(self) -> tuple[_Entry, ...]:
        try:
            raw = json.loads(self._file.read_text("utf-8"))
            if raw.get("reader") != _reader():
                return ()
            return _File.model_validate(raw).entries
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError, ValueError, AttributeError) as cause:
            log.warning("%s is not understood and will be written anew: %s", self._file, cause)
            return ()


def _stamps(folder: Path) -> tuple[str, tuple[Stamp, ...]] | None:
    """The folder that is really read, and its files; None where that cannot be told."""
    try:
        resolved = resolve_model_folder(folder)
        files = [resolved] if resolved.is_file() else sorted(resolved.iterdir())
        return str(resolved.resolve()), tuple(_stamp(file) for file in files if file.suffix.lower() in _SUFFIXES)
    except (OSError, ModelFolderError):
        return None


def _stamp(file: Path) -> Stamp:
    found = file.stat()
    return file.name, found.st_size, found.st_mtime_ns


def _reader() -> str:
    """Changes whenever the code that reads folders does."""
    sources = sorted((program_dir() / "engine" / "contract").glob("*.py"))
    return hashlib.sha256(repr([_stamp(source) for source in sources]).encode()).hexdigest()
