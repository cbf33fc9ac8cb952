"""Which files are one GGUF model: a file, or parts named `NAME-00001-of-00003.gguf`."""

import re
from pathlib import Path

from engine.contract.checkpoint_json import visible
from engine.contract.errors import ModelFileError, ModelFolderError

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_OTHER_FILES = ("mmproj", "imatrix")  # parts for pictures, and statistics
_FIX = "Copy or download this file again."


def gguf_files(place: Path) -> tuple[Path, ...]:
    """The files of the one model in a folder, or of the model a .gguf file belongs to; empty where there are none.

    Raises:
        ModelFolderError: the folder holds several models.
        ModelFileError: a part is missing.
    """
    if place.is_file():
        return _parts(place)
    models = gguf_models(place)
    if len(models) > 1:
        raise ModelFolderError(
            f"{place.name} holds {len(models)} GGUF models and does not say which one to use.",
            f"Choose one of these files: {', '.join(sorted(file.name for file in models.values()))[:400]}.",
            folder=str(place),
            models=len(models),
        )
    return _parts(next(iter(models.values()))) if models else ()


def gguf_models(folder: Path) -> dict[str, Path]:
    """The GGUF models of a folder, each by its name, with its file or the first of its parts."""
    found = sorted(file for file in visible(folder, "*.gguf") if not file.name.startswith(_OTHER_FILES))
    return {name_of(file): file for file in reversed(found)}


def name_of(file: Path) -> str:
    """The name of the model that a file is, or is a part of."""
    match = _PART.fullmatch(file.name)
    return match[1] if match else file.stem


def _parts(file: Path) -> tuple[Path, ...]:
    match = _PART.fullmatch(file.name)
    if match is None:
        return (file,)
    count = int(match[3])
    parts = []
    for number in range(1, count + 1):
        part = file.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf")
        if not part.is_file():
            raise ModelFileError(f"{part.name} is missing: the model has {count} parts.", _FIX, file=part.name)
        parts.append(part)
    return tuple(parts)
