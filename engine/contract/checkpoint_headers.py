"""The tensor table of a safetensors folder: headers only, and every file length checked before anything is allocated.

Format: 8-byte little-endian header length, a JSON header, then the data; offsets count from the start of the data,
which tensors fill without gaps.
"""

import gc
import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.checkpoint_json import MAX_TENSORS, read_index, require_text, visible
from engine.contract.errors import ModelFileError

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
MAX_HEADER_BYTES = 64 << 20  # the largest published ones, with 280,000 tensors in all shards, have some 40 MB in sum

_BITS = {
    "C64": 64, "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "BF16": 16, "F16": 16, "I16": 16,
    "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6,
    "F4": 4,
}  # fmt: skip
_METADATA = re.compile(rb'\s*\{\s*"__metadata__"\s*:\s*(\{[^{}]*\})\s*(?:,|(?=\}))')  # words about the file, in front
_MOST = (1 << 63) - 1  # of an offset or a size
_MOST_SIZES = 32  # of one tensor
_FIX = "Copy or download this file again."


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor on disk. `dtype` is the file's name for it ("BF16", "Q4_K"); `offset` counts from the file's start."""

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
    return (folder / INDEX_NAME).is_file() or any(visible(folder, "*.safetensors"))


def read_headers(folder: Path) -> TensorTable:
    """Read the headers of all weight files.

    Raises:
        ModelFileError: no weights; a file the index names is missing; a file is shorter or longer than its header
            declares; a header is damaged; a tensor appears twice. The error names the file and both byte counts.
    """
    with _no_collection():
        return _table(_files(folder))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python looks through all objects again and again while there are more of them: a quarter of the time here."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _table(files: list[Path]) -> TensorTable:
    table: dict[str, TensorEntry] = {}
    for file in files:
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
    if index.is_file():
        names = read_index(index)
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise ModelFileError(
                f"{missing[0]:.120} is missing: {INDEX_NAME} names {len(names)} weight files,"
                f" {len(missing)} are not there.",
                _FIX,
                file=missing[0],
                missing_files=len(missing),
            )
        return [folder / name for name in names]
    single = folder / SINGLE_NAME
    files = [single] if single.is_file() else sorted(visible(folder, "*.safetensors"))
    if not files:
        raise ModelFileError(f"{folder.name} holds no .safetensors file.", "Choose a folder with the weights.")
    if absent := next((file for file in files if not file.is_file()), None):
        raise ModelFileError(f"{absent.name} is missing: only a link or a folder has its name.", _FIX, file=absent.name)
    return files


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
        raise ModelFileError(f"{file.name} cannot be read: {cause.strerror or cause}.", _FIX, file=file.name) from cause
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
        _check_size(raw)
        header = _header(raw)
        header.pop("__metadata__", None)
        sizes: dict[tuple[str, tuple[int, ...]], int] = {}
        entries = [_entry(file, name, item, start, sizes) for name, item in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as cause:
        why = f"no {cause}" if isinstance(cause, KeyError) else f"{cause!s:.200}"
        raise ModelFileError(f"The header of {file.name} is damaged: {why}.", _FIX, file=file.name) from cause
    check_order(file, start, entries)
    return entries


def _header(raw: bytes) -> dict[str, Any]:
    """The JSON object, refused where a name appears twice.

    A model has up to 280,000 tensors: looking at every pair takes several times as long as reading the text. Where
    nothing is escaped, counting tells as much: each tensor has its three words once, and no name has swallowed another.

    Raises:
        ValueError: it is no JSON, or a name appears twice.
    """
    beside = _METADATA.match(raw)
    tensors = raw if beside is None else b"{" + raw[beside.end() :]
    if b"\\" in raw or b'"__metadata__"' in tensors:
        return _plain_header(raw)
    header: dict[str, Any] = json.loads(tensors.decode("utf-8"))
    once = all(tensors.count(b'"%s"' % word) == len(header) for word in (b"dtype", b"shape", b"data_offsets"))
    if not once or any(len(item) != 3 for item in header.values()):
        return _plain_header(raw)
    if beside is not None:
        _plain_header(beside[1])
    return header


def _plain_header(raw: bytes) -> dict[str, Any]:
    """The same, looking at every pair."""
    found: dict[str, Any] = json.loads(raw.decode("utf-8"), object_pairs_hook=_refuse_twice)
    return found


def check_order(file: Path, start: int, entries: list[TensorEntry], align: int = 1) -> None:
    """Tensors follow each other from `start` on, each on the next multiple of `align`.

    Raises:
        ModelFileError: two tensors overlap, or there is a gap.
    """
    entries.sort(key=lambda entry: (entry.offset, entry.nbytes))
    end, before = start, "the header"
    for entry in entries:
        if entry.offset < end:
            raise ModelFileError(
                f"The header of {file.name} places {before:.120} and {entry.name:.120} over each other: one ends at"
                f" byte {end:,}, the other begins at {entry.offset:,}.",
                _FIX,
                file=file.name,
            )
        if entry.offset - end >= align:
            raise ModelFileError(
                f"The header of {file.name} leaves {entry.offset - end:,} B unused between {before:.120} and"
                f" {entry.name:.120}.",
                _FIX,
                file=file.name,
            )
        end, before = entry.offset + entry.nbytes, entry.name


def _check_size(raw: bytes) -> None:
    """Signs that cannot be part of this many tensors: such a text is parsed into far more memory than it has bytes."""
    tensors = raw.count(b'"data_offsets"')
    signs = {"brackets": raw.count(b"["), "braces": raw.count(b"{"), "commas": raw.count(b",") // 8}
    for name, count in signs.items():
        if count > 2 * tensors + 10_000:
            raise ValueError(f"{count:,} {name} for {tensors:,} tensors")
    if tensors > MAX_TENSORS:
        raise ValueError(f"{tensors:,} tensors; more than {MAX_TENSORS:,} are refused")


def _entry(
    file: Path, name: str, item: dict[str, Any], start: int, sizes: dict[tuple[str, tuple[int, ...]], int]
) -> TensorEntry:
    """One tensor; `sizes` keeps the bytes of types and shapes that were seen."""
    require_text(name)
    begin, end = item["data_offsets"]
    shape = tuple(item["shape"])
    for number in (begin, end, *shape):
        if type(number) is not int or not 0 <= number <= _MOST or begin > end:
            raise ValueError(f"{name:.120} has impossible offsets or sizes")
    dtype = item["dtype"]
    nbytes = sizes.get((dtype, shape)) if isinstance(dtype, str) else None
    if nbytes is None:
        nbytes = sizes[dtype, shape] = _bytes_of(name, dtype, shape)
    entry = TensorEntry(name, file, start + begin, end - begin, dtype, shape)
    if entry.nbytes != nbytes:
        raise ValueError(f"{name:.120} has {entry.nbytes:,} B for {entry.values:,} values of type {dtype}")
    return entry


def _bytes_of(name: str, dtype: object, shape: tuple[int, ...]) -> int:
    if len(shape) > _MOST_SIZES:
        raise ValueError(f"{name:.120} has {len(shape):,} sizes")
    bits = _BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise ValueError(f"{name:.120} is of type {dtype!r:.40}, which is not known")
    return -(-math.prod(shape) * bits // 8)


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice!r:.120} appears twice")
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
