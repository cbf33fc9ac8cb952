"""Writes tensors into safetensors shards one after another; never holds more than one tensor.

Format: 8 bytes header length (little endian), a JSON header with the offsets, then the data.
Source: https://huggingface.co/docs/safetensors. Written here because the library wants a whole shard in memory.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BFloats = NDArray[np.uint16]  # bit patterns of bfloat16, which numpy does not know
_HEADER_ALIGN = 8


def to_bf16(values: NDArray[np.float32]) -> BFloats:
    """Round finite float32 values to bfloat16, ties to even, as torch does."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to be written: its shape is known before its values are."""

    name: str
    shape: tuple[int, ...]
    values: Callable[[], BFloats]

    @property
    def bytes(self) -> int:
        return 2 * int(np.prod(self.shape))


def plan_shards(tensors: Iterable[PlannedTensor], shard_bytes: int) -> list[list[PlannedTensor]]:
    """Cut the sequence of tensors into shards of at most `shard_bytes` (a larger tensor gets its own shard)."""
    shards: list[list[PlannedTensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if shards[-1] and filled + tensor.bytes > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += tensor.bytes
    return shards


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished file, for the completeness check."""

    name: str
    bytes: int
    sha256: str


def write_shards(
    folder: Path, shards: list[list[PlannedTensor]], on_tensor: Callable[[PlannedTensor], None]
) -> Iterator[WrittenFile]:
    """Write every shard and at last the index; yields each file when it is complete."""
    names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for name, tensors in zip(names, shards, strict=True):
        yield _write_shard(folder / name, tensors, on_tensor)
    index = {
        "metadata": {"total_size": sum(tensor.bytes for shard in shards for tensor in shard)},
        "weight_map": {tensor.name: name for name, shard in zip(names, shards, strict=True) for tensor in shard},
    }
    yield write_text(folder / "model.safetensors.index.json", json.dumps(index, indent=2) + "\n")


def write_text(file: Path, text: str) -> WrittenFile:
    """Write UTF-8 with line feeds on every system, so that the hash is the same everywhere."""
    content = text.encode("utf-8")
    file.write_bytes(content)
    return WrittenFile(file.name, len(content), hashlib.sha256(content).hexdigest())


def _write_shard(file: Path, tensors: list[PlannedTensor], on_tensor: Callable[[PlannedTensor], None]) -> WrittenFile:
    digest = hashlib.sha256()
    written = 0
    with file.open("wb") as out:
        for part in _shard_parts(tensors, on_tensor):
            digest.update(part)
            written += out.write(part)
    return WrittenFile(file.name, written, digest.hexdigest())


def _shard_parts(tensors: list[PlannedTensor], on_tensor: Callable[[PlannedTensor], None]) -> Iterator[bytes]:
    yield _header(tensors)
    for tensor in tensors:
        values = tensor.values().astype("<u2", copy=False)
        if values.shape != tensor.shape:
            raise AssertionError(f"{tensor.name}: planned {tensor.shape}, got {values.shape}")
        yield values.tobytes()
        on_tensor(tensor)


def _header(tensors: list[PlannedTensor]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.bytes
        header[tensor.name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _HEADER_ALIGN)
    return len(text).to_bytes(8, "little") + text
