"""Which folder a model is in: the folder itself, a snapshot inside a download cache folder, or a GGUF file."""

import re
from pathlib import Path

from engine.contract.checkpoint_json import read_bounded, visible
from engine.contract.errors import ModelFileError, ModelFolderError

CONFIG_NAME = "config.json"
_HUB_FOLDER = re.compile(r"models--(.+)")
_MAX_REF_BYTES = 4096


def resolve_model_folder(folder: Path) -> Path:
    """The folder that holds config.json or GGUF files: `folder` itself, or the snapshot inside a download cache folder.

    A path of a GGUF file stands for itself.

    Raises:
        ModelFolderError: no such folder, no model in it, or several snapshots and no word which one is meant.
    """
    try:
        return _resolved(folder)
    except OSError as cause:
        raise ModelFolderError(
            f"{folder} cannot be read: {cause.strerror or cause}.", "Check the folder.", folder=str(folder)
        ) from cause


def _resolved(folder: Path) -> Path:
    if folder.suffix.lower() == ".gguf" and folder.is_file():
        return folder
    if not folder.is_dir():
        raise ModelFolderError(f"There is no folder {folder}.", "Choose a folder that exists.", folder=str(folder))
    if _holds_model(folder):
        return folder
    snapshots = folder / "snapshots"
    if not snapshots.is_dir():
        raise ModelFolderError(
            f"There is no config.json in {folder}.",
            "Choose the folder that holds config.json and the weight files.",
            folder=str(folder),
        )
    named = _named_by_ref(folder / "refs" / "main", snapshots)
    if named is not None:
        return _with_model(named)
    there = sorted(path for path in snapshots.iterdir() if path.is_dir())
    if len(there) != 1:
        raise ModelFolderError(
            f"{folder.name} holds {len(there)} snapshots and does not say which one to use.",
            f"Choose one of them: {', '.join(path.name for path in there)[:400]}." if there
            else "Download the model again.",
            folder=str(folder),
            snapshots=len(there),
        )  # fmt: skip
    return _with_model(there[0])


def _named_by_ref(ref: Path, snapshots: Path) -> Path | None:
    """The snapshot `refs/main` names; None where it names none that is there."""
    if not ref.is_file():
        return None
    try:
        name = read_bounded(ref, _MAX_REF_BYTES, ModelFileError).decode("utf-8").strip()
    except (UnicodeDecodeError, ModelFileError):
        return None  # as good as no word: the snapshots themselves decide
    plain = name not in ("", ".", "..") and not any(sign in name for sign in "/\\:\0")
    return snapshots / name if plain and (snapshots / name).is_dir() else None


def _holds_model(folder: Path) -> bool:
    return (folder / CONFIG_NAME).is_file() or any(file.is_file() for file in visible(folder, "*.gguf"))


def _with_model(snapshot: Path) -> Path:
    if not _holds_model(snapshot):
        raise ModelFolderError(
            f"There is no config.json in {snapshot}.", "Download the model again.", folder=str(snapshot)
        )
    return snapshot


def model_name(asked: Path, resolved: Path) -> str:
    """The folder's name for people; of a download cache folder the model's own name."""
    for part in (asked.resolve(), *asked.resolve().parents):
        if cached := _HUB_FOLDER.fullmatch(part.name):
            return cached[1].split("--")[-1]
    return resolved.resolve().name
