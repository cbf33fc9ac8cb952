"""Weight files with true headers and no data: sparse files, so that a 60 GiB model takes no room on the disk."""

import json
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.contract.gguf_headers import GGUF_TYPES

Tensor = tuple[str, tuple[int, ...], int]  # type, shape, bytes

_BITS = {"F32": 32, "BF16": 16, "F16": 16, "F8_E4M3": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "I32": 32, "I64": 64}
_GGUF_NUMBERS = {name: number for number, (name, _, _) in GGUF_TYPES.items()}
_BLOCKS = {name: (weights, size) for name, weights, size in GGUF_TYPES.values()}


def tensor(dtype: str, *shape: int) -> Tensor:
    """A tensor of a safetensors file."""
    values = 1
    for size in shape:
        values *= size
    return dtype, shape, values * _BITS[dtype] // 8


def write_safetensors(file: Path, tensors: Mapping[str, Tensor]) -> int:
    """Write header and empty data; returns the length of the file."""
    offset, header = 0, {}
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    file.write_bytes(struct.pack("<Q", len(raw)) + raw)
    os.truncate(file, 8 + len(raw) + offset)
    return 8 + len(raw) + offset


def gguf_text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(value: Any) -> bytes:
    """A metadata value with its type: bool, int (u32, or u64 where needed), float, text, and lists of one of these."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int() if 0 <= value < 1 << 32:
            return struct.pack("<II", 4, value)
        case int():
            return struct.pack("<Iq" if value < 0 else "<IQ", 11 if value < 0 else 10, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + gguf_text(value)
        case list():
            items = [gguf_value(item) for item in value]
            kind = items[0][:4] if items else struct.pack("<I", 4)
            return struct.pack("<I", 9) + kind + struct.pack("<Q", len(items)) + b"".join(item[4:] for item in items)
    raise TypeError(value)


def gguf_header(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, align: int = 32
) -> tuple[bytes, int]:
    """The bytes of a header up to the data, and how long the file must be. Tensors: type name and shape."""
    pairs: Iterable[bytes] = (gguf_text(key) + gguf_value(value) for key, value in metadata.items())
    table, offset = b"", 0
    for name, (kind, shape) in tensors.items():
        weights, size = _BLOCKS[kind]
        values = 1
        for length in shape:
            values *= length
        table += gguf_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        table += struct.pack("<IQ", _GGUF_NUMBERS[kind], offset)
        offset += -(-(values // weights * size) // align) * align
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(pairs) + table
    head += bytes(-len(head) % align)
    return head, len(head) + offset


def write_gguf(
    file: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, align: int = 32
) -> int:
    """Write header and empty data; returns the length of the file."""
    head, length = gguf_header(metadata, tensors, align=align)
    file.write_bytes(head)
    os.truncate(file, length)
    return length
