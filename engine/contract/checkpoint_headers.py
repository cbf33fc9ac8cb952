"""The tensor table of a safetensors folder: headers only, and every file length checked before anything is allocated.

Format: 8-byte little-endian header length, a JSON header, then the data; offsets count from the start of the data.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.contract.errors import ModelFileError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
MAX_HEADER_BYTES = 100 * 10**6  # the safetensors library refuses longer ones too

_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "BF16": 16, "F16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8, "F4": 4,
}  # fmt: skip
_FIX = "Copy or download this file again."


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor on disk. `dtype` is the safetensors name, such as "BF16"; `offset` counts from the file's start."""

    name: str
    file: Path
    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def values(self) -> int:
        """How many numbers it holds."""
        count = 1
        for size in self.shape:
            count *= size
        return count


TensorTable = Mapping[str, TensorEntry]


def has_weights(folder: Path) -> bool:
    """Whether the folder holds or at least names safetensors files."""
    return (folder / INDEX_NAME).is_file() or any(folder.glob("*.safetensors"))


def read_headers(folder: Path) -> TensorTable:
    """Read the headers of all weight files.

    Raises:
        ModelFileError: no weights; a file the index names is missing; a file is shorter or longer than its header
            declares; a header is damaged; a tensor appears twice. The error names the file and both byte counts.
    """
    table: dict[str, TensorEntry] = {}
    for file in _files(folder):
        for entry in _read_file(file):
            if entry.name in table:
                raise ModelFileError(
                    f"Tensor {entry.name} is in both {table[entry.name].file.name} and {file.name}.",
                    "Remove the file that does not belong to this model.",
                    file=file.name,
                    tensor=entry.name,
                )
            table[entry.name] = entry
    return table


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX_NAME
    if not index.is_file():
        single = folder / SINGLE_NAME
        files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
        if not files:
            raise ModelFileError(f"{folder.name} holds no .safetensors file.", "Choose a folder with the weights.")
        return files
    try:
        names = sorted({str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise ModelFileError(f"{INDEX_NAME} is not an index of weight files.", _FIX, file=INDEX_NAME) from cause
    if strange := next((name for name in names if Path(name).name != name), None):
        raise ModelFileError(f"{INDEX_NAME} names a file outside of the folder: {strange}.", _FIX, file=INDEX_NAME)
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ModelFileError(
            f"{missing[0]} is missing: {INDEX_NAME} names {len(names)} weight files, {len(missing)} are not there.",
            _FIX,
            file=missing[0],
            missing_files=len(missing),
        )
    return [folder / name for name in names]


def _read_file(file: Path) -> list[TensorEntry]:
    try:
        actual = file.stat().st_size
        with file.open("rb") as stream:
            prefix = stream.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if len(prefix) < 8 or length > MAX_HEADER_BYTES or 8 + length > actual:
                raise _wrong_header_length(file, length, actual)
            raw = stream.read(length)
    except OSError as cause:
        raise ModelFileError(f"{file.name} cannot be read: {cause.strerror}.", _FIX, file=file.name) from cause
    start = 8 + length
    entries = _parse(file, raw, start)
    declared = max((entry.offset + entry.nbytes for entry in entries), default=start)
    if declared != actual:
        difference = f"{declared - actual:,} B short" if declared > actual else f"{actual - declared:,} B too long"
        raise ModelFileError(
            f"{file.name} has {actual:,} B; its header declares {declared:,} B: {difference}.",
            _FIX,
            file=file.name,
            declared_bytes=declared,
            actual_bytes=actual,
        )
    return entries


def _parse(file: Path, raw: bytes, start: int) -> list[TensorEntry]:
    try:
        header: dict[str, Any] = json.loads(raw, object_pairs_hook=_refuse_twice)
        header.pop("__metadata__", None)
        entries = [_entry(file, name, item, start) for name, item in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as cause:
        raise ModelFileError(f"The header of {file.name} is damaged: {cause}.", _FIX, file=file.name) from cause
    ordered = sorted(entries, key=lambda entry: (entry.offset, entry.nbytes))
    for before, after in pairwise(ordered):
        if after.offset < before.offset + before.nbytes:
            raise ModelFileError(
                f"The header of {file.name} places {before.name} and {after.name} over each other.",
                _FIX,
                file=file.name,
            )
    return entries


def _entry(file: Path, name: str, item: dict[str, Any], start: int) -> TensorEntry:
    begin, end = item["data_offsets"]
    shape = tuple(item["shape"])
    if not all(isinstance(number, int) and number >= 0 for number in (begin, end, *shape)) or begin > end:
        raise ValueError(f"{name} has impossible offsets or sizes")
    entry = TensorEntry(
        name=name, file=file, offset=start + begin, nbytes=end - begin, dtype=str(item["dtype"]), shape=shape
    )
    bits = _BITS.get(entry.dtype)
    if bits is not None and entry.nbytes != -(-entry.values * bits // 8):
        raise ValueError(f"{name} has {entry.nbytes:,} B for {entry.values:,} values of type {entry.dtype}")
    return entry


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} appears twice")
    return table


def _wrong_header_length(file: Path, length: int, actual: int) -> ModelFileError:
    if actual < 8:
        sentence = f"{file.name} has {actual:,} B; a weight file has at least 8 B."
    elif length > MAX_HEADER_BYTES:
        sentence = f"{file.name} declares a header of {length:,} B; more than {MAX_HEADER_BYTES:,} B are refused."
    else:
        sentence = (
            f"{file.name} has {actual:,} B; its header alone takes {8 + length:,} B: {8 + length - actual:,} B short."
        )
    return ModelFileError(sentence, _FIX, file=file.name, declared_bytes=8 + length, actual_bytes=actual)
