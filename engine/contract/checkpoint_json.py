"""Files of a model folder, and JSON read with limits: a hostile file is refused, it takes no memory and no time."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.contract.errors import ModelFileError, ModelFolderError, SplitpinError

MAX_CONFIG_BYTES = 2 << 20  # published ones have up to some 100 kB; parsed, 2 MiB stay below 64 MiB of objects
MAX_INDEX_BYTES = 64 << 20  # the largest published ones, with 280,000 tensors, have some 35 MB
MAX_DEPTH = 64
MAX_TENSORS = 500_000

_MAP = re.compile(rb'"weight_map"\s*:\s*\{\s*\n')
_LARGE_MAP_BYTES = 1 << 20
_BLOCK_LINES = 2_000

_FIX = "Download this file again."


def visible(folder: Path, pattern: str) -> Iterator[Path]:
    """Files of a folder that match; not "._model.safetensors" and the like, which macOS leaves beside copied files."""
    return (file for file in folder.glob(pattern) if not file.name.startswith("."))


def read_bounded(file: Path, most_bytes: int, kind: type[SplitpinError]) -> bytes:
    """The bytes of a small file.

    Raises:
        kind: it cannot be read, or has more than `most_bytes`; the error names the file and both byte counts.
    """
    try:
        actual = file.stat().st_size
        if actual > most_bytes:
            raise _too_long(file, actual, most_bytes, kind)
        with file.open("rb") as stream:
            raw = stream.read(actual + 1)  # a buffer of that size is allocated at once
    except OSError as cause:
        raise kind(f"{file} cannot be read: {cause.strerror or cause}.", "Check the folder.") from cause
    if len(raw) > most_bytes:
        raise _too_long(file, len(raw), most_bytes, kind)
    return raw


def _too_long(file: Path, actual: int, most: int, kind: type[SplitpinError]) -> SplitpinError:
    return kind(
        f"{file.name} has {actual:,} B; more than {most:,} B are refused.",
        _FIX,
        file=file.name,
        actual_bytes=actual,
        most_bytes=most,
    )


def read_config_file(file: Path) -> dict[str, Any]:
    """config.json as a table.

    Raises:
        ModelFolderError: it cannot be read, is no JSON object, or is nested without end.
    """
    try:
        config = json.loads(read_bounded(file, MAX_CONFIG_BYTES, ModelFolderError).decode("utf-8"))
        _check_plain(config)
    except (ValueError, RecursionError) as cause:
        raise ModelFolderError(f"{file} is not valid JSON: {cause!s:.200}.", "Download config.json again.") from cause
    if not isinstance(config, dict):
        raise ModelFolderError(f"{file} does not describe a model.", "Download config.json again.")
    return config


def _check_plain(config: object) -> None:
    """Refuse what later steps could stumble over: deep nesting, and text that cannot be written as UTF-8."""
    open_levels: list[Iterator[object]] = [iter((config,))]
    while open_levels:
        for value in open_levels[-1]:
            if isinstance(value, str):
                require_text(value)
            elif isinstance(value, dict):
                for key in value:
                    require_text(key)
                open_levels.append(iter(value.values()))
                break
            elif isinstance(value, list):
                open_levels.append(iter(value))
                break
        else:
            open_levels.pop()
        if len(open_levels) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels inside each other")


def require_text(text: str) -> None:
    """Raise ValueError for half characters, which JSON can write and nothing can print."""
    if not text.isascii():
        text.encode("utf-8")


def read_index(file: Path) -> tuple[str, ...]:
    """Names of the weight files an index names, each once, sorted.

    Raises:
        ModelFileError: it cannot be read, is no index, or names something that is no file of its folder.
    """
    raw = read_bounded(file, MAX_INDEX_BYTES, ModelFileError)
    try:
        if raw.count(b'"') > 4 * MAX_TENSORS or raw.count(b"[") + raw.count(b"{") > 10_000:
            raise ValueError("more entries than a model has tensors")
        names = {_file_name(name) for name in _mapped(raw)}
        if not names:
            raise ValueError("it names no file")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise ModelFileError(
            f"{file.name} is not an index of weight files: {cause!s:.200}.", _FIX, file=file.name
        ) from cause
    outside = next((name for name in sorted(names) if not _is_plain_name(name)), None)
    if outside is not None:
        raise ModelFileError(f"{file.name} names a file outside of the folder: {outside:.120}.", _FIX, file=file.name)
    return tuple(sorted(names))


def _mapped(raw: bytes) -> set[object]:
    """The values of `weight_map`.

    A large map, a line for each tensor as it is published, is read in blocks: for as long as one call to json takes,
    no other thread of the launcher runs, and a window would stand still.
    """
    opened = _MAP.search(raw)
    closed = -1 if opened is None else raw.find(b"}", opened.end())
    if opened is not None and closed >= 0 and closed - opened.end() > _LARGE_MAP_BYTES:
        try:
            if json.loads(raw[: opened.end()] + raw[closed:])["weight_map"] == {}:
                return _mapped_in(raw[opened.end() : closed].split(b"\n"))
        except (ValueError, TypeError):
            pass  # laid out otherwise
    return set(json.loads(raw.decode("utf-8"))["weight_map"].values())


def _mapped_in(lines: list[bytes]) -> set[object]:
    found: set[object] = set()
    for first in range(0, len(lines), _BLOCK_LINES):
        block = b"\n".join(lines[first : first + _BLOCK_LINES]).strip().removesuffix(b",")
        found.update(json.loads(b"{%s}" % block).values())
    return found


def _file_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r:.60} is no file name")
    require_text(name)
    return name


def _is_plain_name(name: str) -> bool:
    """Whether a name is that of a file in the folder itself, on every system."""
    return name not in ("", ".", "..") and len(name) <= 255 and not any(sign in name for sign in "/\\:\0")
