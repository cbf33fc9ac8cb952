"""The rows of the parity table: every family, and every format on families that are published in it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.support.gguf_metadata import ARCHITECTURES
from tests.support.gguf_models import gguf_model
from tests.support.packed_cases import CASES, packed_case
from tests.support.packed_models import packed_model
from tests.support.tiny_families import TINY_FAMILIES, tiny_family
from tests.support.tiny_models import TinyModel

Made = tuple[TinyModel, TinyModel]  # for the engine, and for the stock model
GGUF_STORED: dict[str, dict[str, Any]] = {
    "Q8_0": {"gate": "Q8_0"},
    "Q4_0": {"gate": "Q4_0"},
    "Q4_K": {"gate": "Q4_K"},
    "Q6_K": {"gate": "Q6_K"},
    "MXFP4": {"gate": "MXFP4"},
    "NVFP4": {"gate": "NVFP4"},
    "mixed": {"gate": "Q4_K", "up": "Q5_K", "down": "Q6_K", "last_layer": "Q8_0"},
    "IQ2_XXS with Q2_K": {"gate": "IQ2_XXS", "down": "Q2_K", "last_layer": "Q3_K"},
}
_GGUF_FAMILIES = ("qwen3moe", "llama", "glm4moe")


@dataclass(frozen=True)
class Row:
    """One checkpoint of the table."""

    family: str
    stored: str
    make: Callable[[Path], Made]
    dtype: torch.dtype = torch.float32


def all_rows() -> Iterator[Row]:
    """Every row, in the order they are printed."""
    for dtype, stored in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        for family in TINY_FAMILIES:
            yield Row(family, stored, _plain(family, dtype), dtype)
    for family in ("mixtral", "qwen3_moe"):
        yield Row(family, "fp16", _half(family), torch.float16)
    for name, ((family, _, _), _) in CASES.items():
        yield Row(family, name, _packed(name))
    for arch in ARCHITECTURES:
        yield Row(arch, "GGUF Q8_0", _gguf(arch, {"gate": "Q8_0"}))
    for family in _GGUF_FAMILIES:
        for name, how in GGUF_STORED.items():
            yield Row(family, f"GGUF {name}, wide", _gguf(family, {**how, "wide": True}))
    yield Row("gpt-oss", "GGUF MXFP4", _gguf("gpt-oss", {"gate": "MXFP4"}))
    yield Row("qwen3moe", "GGUF Q4_0, dense too", _gguf("qwen3moe", {"gate": "Q4_0", "dense": "Q4_0"}), torch.bfloat16)


def _plain(family: str, dtype: torch.dtype) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        model = tiny_family(family, folder / family, dtype)
        return model, model

    return make


def _half(family: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        pair = packed_model(folder, family, None, None, dtype=torch.float16)
        return pair.packed, pair.plain

    return make


def _packed(name: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        pair = packed_case(name, folder)
        return pair.packed, pair.plain

    return make


def _gguf(arch: str, how: dict[str, Any]) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        pair = gguf_model(folder, arch, **how)
        return pair.gguf, pair.plain

    return make
