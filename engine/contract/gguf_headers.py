"""Headers of GGUF files: metadata and tensor table, read without any tensor data and without trusting a single number.

Format (GGUF 2 and 3, little-endian): magic, version, number of tensors, number of metadata pairs, the pairs, the
tensor table, then the data from the next multiple of `general.alignment` on. Source: docs/gguf.md of ggml; block sizes:
`GGML_QUANT_SIZES` of the gguf package. Vocabularies, which make up nearly all of a header, are passed over.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.contract.checkpoint_headers import TensorEntry, check_order
from engine.contract.checkpoint_json import MAX_TENSORS
from engine.contract.errors import ModelFileError
from engine.contract.gguf_files import name_of
from engine.contract.units import MIB, round_up

MAX_PAIRS = 65_536
MAX_STRINGS = 4_000_000  # in all lists of words together
MAX_KEPT = 4096  # numbers of a list, bytes of a text that are kept
MAX_NAME_BYTES = 1024
MAX_ALIGNMENT = 1 << 16

Value = int | float | bool | str | tuple[int | float | bool, ...] | None  # None: too long to keep

GGUF_TYPES: dict[int, tuple[str, int, int]] = {  # number: name, weights and bytes of one block
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
}  # fmt: skip

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_FIX = "Copy or download this file again."


@dataclass(frozen=True, slots=True)
class GgufModel:
    """What the headers of one model say. A model may be split into several files."""

    name: str
    metadata: dict[str, Value]
    tensors: dict[str, TensorEntry]  # shapes as in GGUF: columns first


def read_gguf_values(file: Path, keys: frozenset[str]) -> dict[str, Any]:
    """Some values of the metadata in full, however long: lists as lists. Missing ones are left out.

    Raises:
        ModelFileError: the header is damaged, or the file cannot be read.
    """
    try:
        with file.open("rb", buffering=MIB) as stream:
            header = _Header(file, stream, file.stat().st_size, keys)
            pairs, _ = header.read()
    except OSError as cause:
        raise ModelFileError(f"{file.name} cannot be read: {cause.strerror or cause}.", _FIX) from cause
    return {key: header.kept.get(key, pairs[key]) for key in keys if key in pairs}


def read_gguf(files: tuple[Path, ...]) -> GgufModel:
    """Read the headers of all files of a model; metadata is that of the first one.

    Raises:
        ModelFileError: a file is shorter or longer than its header declares, the header is damaged, or a tensor is in
            two files. The error names the file and both byte counts.
    """
    metadata: dict[str, Value] = {}
    tensors: dict[str, TensorEntry] = {}
    for file in files:
        try:
            with file.open("rb", buffering=MIB) as stream:
                header = _Header(file, stream, file.stat().st_size)
                pairs, entries = header.read()
        except OSError as cause:
            raise ModelFileError(f"{file.name} cannot be read: {cause.strerror or cause}.", _FIX) from cause
        metadata = metadata or pairs
        for entry in entries:
            if entry.name in tensors:
                raise ModelFileError(
                    f"Tensor {entry.name:.120} is in both {tensors[entry.name].file.name} and {file.name}.",
                    "Remove the file that does not belong to this model.",
                    file=file.name,
                    tensor=entry.name,
                )
            tensors[entry.name] = entry
    declared = metadata.get("split.tensors.count")
    if isinstance(declared, int) and declared != len(tensors):
        raise ModelFileError(
            f"{files[0].name} declares {declared:,} tensors in all parts; they hold {len(tensors):,}.", _FIX
        )
    return GgufModel(name=name_of(files[0]), metadata=metadata, tensors=tensors)


class _Header:
    """Reads one header from front to back; never asks for more bytes than the file has."""

    def __init__(self, file: Path, stream: BinaryIO, actual_bytes: int, keep: frozenset[str] = frozenset()) -> None:
        """`keep` names the pairs whose values are kept however long they are."""
        self.kept: dict[str, Any] = {}
        self._keep = keep
        self._file = file
        self._stream = stream
        self._actual = actual_bytes
        self._at = 0
        self._strings = 0

    def read(self) -> tuple[dict[str, Value], list[TensorEntry]]:
        if self._take(4) != b"GGUF":
            raise self._damaged("it does not begin with GGUF")
        version = self._number("I")
        if version not in (2, 3):
            swapped = version >= 1 << 16
            raise self._damaged("it is big-endian" if swapped else f"version {version} is not known")
        n_tensors, n_pairs = self._number("Q"), self._number("Q")
        self._limit("tensors", n_tensors, MAX_TENSORS, 24)
        self._limit("metadata pairs", n_pairs, MAX_PAIRS, 13)
        pairs: dict[str, Value] = {}
        for _ in range(n_pairs):
            key = self._text(MAX_NAME_BYTES)
            if key in pairs:
                raise self._damaged(f"{key!r:.120} appears twice")
            kind = self._number("I")
            if key in self._keep and kind in (_STRING, _ARRAY):
                pairs[key], self.kept[key] = None, self._whole(kind)
            else:
                pairs[key] = self._value(kind, depth=0)
        alignment = pairs.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment % 8:
            raise self._damaged(f"an alignment of {alignment!r:.40} is not possible")
        rows = [self._tensor(alignment) for _ in range(n_tensors)]
        start = round_up(self._at, alignment)
        entries = [
            TensorEntry(name=name, file=self._file, offset=start + offset, nbytes=nbytes, dtype=dtype, shape=shape)
            for name, offset, nbytes, dtype, shape in rows
        ]
        if len({entry.name for entry in entries}) != len(entries):
            raise self._damaged("a tensor appears twice")
        check_order(self._file, start, entries, alignment)
        end = entries[-1].offset + entries[-1].nbytes if entries else self._at
        self._check_length(end, round_up(end, alignment))
        return pairs, entries

    def _tensor(self, alignment: int) -> tuple[str, int, int, str, tuple[int, ...]]:
        name = self._text(MAX_NAME_BYTES)
        n_sizes = self._number("I")
        if n_sizes > 4:
            raise self._damaged(f"{name:.120} has {n_sizes:,} sizes")
        shape = tuple(self._number("Q") for _ in range(n_sizes))
        kind = GGUF_TYPES.get(number := self._number("I"))
        offset = self._number("Q")
        if kind is None:
            raise self._damaged(f"{name:.120} is of type {number}, which is not known")
        dtype, block, size = kind
        values = 1
        for length in shape:
            values *= length
        if shape and shape[0] % block:
            raise self._damaged(f"{name:.120} has rows of {shape[0]:,} weights; {dtype} packs {block} at a time")
        if offset % alignment:
            raise self._damaged(f"{name:.120} begins at byte {offset:,}, which is no multiple of {alignment}")
        return name, offset, values // block * size, dtype, shape

    def _check_length(self, least: int, most: int) -> None:
        if least <= self._actual <= most:
            return
        declared = least if self._actual < least else most
        difference = (
            f"{least - self._actual:,} B short" if self._actual < least else f"{self._actual - most:,} B too long"
        )
        raise ModelFileError(
            f"{self._file.name} has {self._actual:,} B; its header declares {declared:,} B: {difference}.",
            _FIX,
            file=self._file.name,
            declared_bytes=declared,
            actual_bytes=self._actual,
        )

    def _value(self, kind: int, depth: int) -> Value:
        if code := _SCALARS.get(kind):
            return self._scalar(code)
        if kind == _STRING:
            length = self._number("Q")
            if length > MAX_KEPT:
                self._skip(length)
                return None
            return self._decoded(self._take(length))
        if kind == _ARRAY:
            return self._array(depth)
        raise self._damaged(f"a value is of type {kind}, which is not known")

    def _whole(self, kind: int) -> str | list[Any]:
        """A text, or a list of numbers or texts."""
        if kind == _STRING:
            return self._decoded(self._take(self._number("Q")))
        kind, count = self._number("I"), self._number("Q")
        if code := _SCALARS.get(kind):
            return list(struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize(f"<{code}"))))
        if kind != _STRING:
            raise self._damaged(f"a list holds values of type {kind}, which is not known")
        self._count_words(count)
        return self._words(count)

    def _words(self, count: int) -> list[str]:
        """Texts one behind the other; vocabularies are long, so each takes as few steps as possible."""
        read: Callable[[int], bytes] = self._stream.read
        unpack = struct.Struct("<Q").unpack
        found, at, actual = [], self._at, self._actual
        for _ in range(count):
            prefix = read(8)
            length = unpack(prefix)[0] if len(prefix) == 8 else actual
            at += 8 + length
            if at > actual:
                raise self._too_short(at)
            raw = read(length)
            try:
                found.append(raw.decode("utf-8"))
            except UnicodeDecodeError:
                self._decoded(raw)
        self._at = at
        return found

    def _array(self, depth: int) -> Value:
        kind, count = self._number("I"), self._number("Q")
        if code := _SCALARS.get(kind):
            size = struct.calcsize(f"<{code}")
            if count > MAX_KEPT:
                self._skip(count * size)
                return None
            return tuple(struct.unpack(f"<{count}{code}", self._take(count * size)))
        if kind not in (_STRING, _ARRAY) or depth > 2:
            raise self._damaged(f"a list holds values of type {kind}, which is not known")
        self._count_words(count)
        if kind == _STRING:
            self._skip_strings(count)
        else:
            for _ in range(count):
                self._array(depth + 1)
        return None

    def _skip_strings(self, count: int) -> None:
        read: Callable[[int], bytes] = self._stream.read
        unpack = struct.Struct("<Q").unpack
        at, actual = self._at, self._actual
        for _ in range(count):
            prefix = read(8)
            if len(prefix) < 8:
                break
            (length,) = unpack(prefix)
            at += 8 + length
            if at > actual:
                break
            if length > MIB:
                self._stream.seek(length, 1)
            else:
                read(length)
        else:
            self._at = at
            return
        raise self._too_short(at)

    def _number(self, code: str) -> int:
        value = self._scalar(code)
        assert isinstance(value, int)
        return value

    def _scalar(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]
        return value

    def _text(self, most_bytes: int) -> str:
        length = self._number("Q")
        if length > most_bytes:
            raise self._damaged(f"a name of {length:,} B; more than {most_bytes:,} B are refused")
        return self._decoded(self._take(length))

    def _decoded(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as cause:
            raise self._damaged(f"{raw[:40]!r} is no text in UTF-8") from cause

    def _take(self, count: int) -> bytes:
        if self._at + count > self._actual:
            raise self._too_short(self._at + count)
        self._at += count
        raw = self._stream.read(count)
        if len(raw) < count:
            raise self._too_short(self._at)
        return raw

    def _skip(self, count: int) -> None:
        if self._at + count > self._actual:
            raise self._too_short(self._at + count)
        self._at += count
        self._stream.seek(count, 1)

    def _limit(self, what: str, count: int, most: int, least_bytes: int) -> None:
        if count > most:
            raise self._damaged(f"{count:,} {what}; more than {most:,} are refused")
        if self._at + count * least_bytes > self._actual:
            raise self._too_short(self._at + count * least_bytes)

    def _count_words(self, count: int) -> None:
        """Another list of words begins; each takes 8 bytes at least."""
        self._strings += count
        self._limit("words", self._strings, MAX_STRINGS, 0)
        self._limit("words", count, MAX_STRINGS, 8)

    def _too_short(self, needed: int) -> ModelFileError:
        return ModelFileError(
            f"{self._file.name} has {self._actual:,} B; its header alone takes at least {needed:,} B:"
            f" {max(needed - self._actual, 0):,} B short.",
            _FIX,
            file=self._file.name,
            declared_bytes=needed,
            actual_bytes=self._actual,
        )

    def _damaged(self, why: str) -> ModelFileError:
        return ModelFileError(f"The header of {self._file.name} is damaged: {why}.", _FIX, file=self._file.name)
