"""Unpacked weights are those of the libraries that own the formats, bit for bit."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.checkpoint_packed import PackedTensor, sort_packed
from engine.contract.errors import UnsupportedModelError
from engine.experts.dequant import matrix
from engine.experts.dequant.code import NUMBER_TYPES, MatrixCode, Pieces, code_of
from engine.experts.dequant.floats import fp8_values
from engine.experts.dequant.gguf import GGUF_TYPES
from engine.experts.dequant.matrix import dequantise
from engine.experts.dequant.scales import scale_values
from tests.reference.make_compressed_tensors import CASES, COLUMNS, FILE, ROWS
from tests.support import packed_weights as pack
from tests.support.gguf_rows import random_gguf_rows

GOLDEN = load_file(FILE)
_NAMES = {dtype: name for name, dtype in NUMBER_TYPES.items()} | {torch.float8_e8m0fnu: "F8_E8M0"}


def _unpack(tensors: dict[str, Tensor], rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Through the same steps as a checkpoint: names and types of tensors, then their bytes."""
    entries = [
        TensorEntry(f"x.{name}", Path(), 0, tensor.nbytes, _NAMES[tensor.dtype], tuple(tensor.shape))
        for name, tensor in tensors.items()
    ]
    (packed,) = sort_packed(entries).packed.values()
    code = code_of(packed, rows, columns)

    def raw(entry: TensorEntry | None) -> Tensor | None:
        if entry is None:
            return None
        return tensors[entry.name.removeprefix("x.")].contiguous().reshape(-1).view(torch.uint8)

    weight = raw(packed.weight)
    assert weight is not None
    whole = None if packed.whole is None else tensors[packed.whole.name.removeprefix("x.")].reshape(())
    out = torch.full((rows, columns), torch.nan, dtype=dtype)
    dequantise(code, Pieces(weight, raw(packed.scale), raw(packed.zero), raw(packed.order), whole), out)
    return out


@pytest.mark.parametrize("case", list(CASES))
def test_compressed_tensors_unpacks_the_same(case: str) -> None:
    tensors = {name.removeprefix(f"{case}."): tensor for name, tensor in GOLDEN.items() if name.startswith(f"{case}.")}
    values = tensors.pop("values")
    assert torch.equal(_unpack(tensors, ROWS, COLUMNS, torch.bfloat16).float(), values)  # it computes in bf16


def test_transformers_unpacks_mxfp4_the_same() -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    random = torch.Generator().manual_seed(3)
    blocks = torch.randint(256, (1, 6, 4, 16), generator=random).to(torch.uint8)
    scales = torch.randint(100, 140, (1, 6, 4), generator=random).to(torch.uint8)
    want = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)[0].T
    got = _unpack({"blocks": blocks[0], "scales": scales[0]}, 6, 128, torch.bfloat16)
    assert torch.equal(got, want)


PACKERS: dict[str, pack.Packer] = {
    "fp8 blocks": pack.fp8_blocks("weight_scale_inv", torch.float32),
    "fp8 blocks of exponents": pack.fp8_blocks("scale", torch.float8_e8m0fnu),
    "mxfp8": pack.mxfp8,
    "nvfp4 modelopt": pack.nvfp4_modelopt,
    "nvfp4 compressed-tensors": pack.nvfp4_compressed,
    "gptq": pack.gptq(4, 64),
    "gptq of 3 bits, reordered": pack.gptq(3, 64, reordered=True),
    "awq": pack.awq,
    "int4 with zero points": pack.packed_ints(4, 64, zeros=True),
}


@pytest.mark.parametrize("name", list(PACKERS))
def test_weights_are_the_same_in_strips_of_any_height(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, values = PACKERS[name](torch.Generator().manual_seed(4), 192, 320)
    assert torch.equal(_unpack(tensors, 192, 320), values.float())
    for height in (1, 7, 50):
        monkeypatch.setattr(matrix, "_CPU_STRIP_VALUES", height * 320)
        assert torch.equal(_unpack(tensors, 192, 320), values.float())


@pytest.mark.parametrize(("name", "dtype"), [("F8_E4M3", torch.float8_e4m3fn), ("F8_E5M2", torch.float8_e5m2)])
@pytest.mark.parametrize("part", [slice(None), slice(0, 255), slice(1, 256), slice(1, 255)])
def test_all_numbers_of_8_bits_are_what_torch_makes_of_them(name: str, dtype: torch.dtype, part: slice) -> None:
    raw = torch.arange(256).to(torch.uint8)[part]  # odd lengths and places too: they are looked up two at a time
    want = raw.view(dtype).float()
    torch.testing.assert_close(fp8_values(raw, name), want, rtol=0, atol=0, equal_nan=True)
    assert want.isnan().any()


def test_exponents_are_powers_of_two() -> None:
    raw = torch.arange(255, dtype=torch.uint8)
    assert torch.equal(scale_values(raw, "F8_E8M0"), raw.view(torch.float8_e8m0fnu).float())


@pytest.mark.parametrize("name", sorted(GGUF_TYPES))
def test_gguf_unpacks_the_same(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    raw = random_gguf_rows(np.random.default_rng(6), name, 8, 512)
    want = gguf.quants.dequantize(raw, kind)
    assert np.isfinite(want).all() and len(np.unique(want)) > 3
    out = torch.empty(8, 512)
    dequantise(MatrixCode("gguf", 8, 512, name), Pieces(torch.from_numpy(raw).flatten()), out)
    assert torch.equal(out, torch.from_numpy(want))


@pytest.mark.parametrize(
    ("weight", "scale"),
    [
        (("U8", (8, 16)), None),
        (("I32", (8, 5)), ("F16", (8, 1))),
        (("F8_E4M3", (8, 32)), ("F32", (3, 1))),
        (("I8", (8, 32)), ("I32", (8, 1))),
    ],
)
def test_a_layout_that_is_not_known_is_refused(
    weight: tuple[str, tuple[int, ...]], scale: tuple[str, tuple[int, ...]] | None
) -> None:
    def entry(name: str, found: tuple[str, tuple[int, ...]]) -> TensorEntry:
        item = {"U8": 1, "I8": 1, "F8_E4M3": 1, "F16": 2, "F32": 4, "I32": 4}[found[0]]
        return TensorEntry(f"x.{name}", Path(), 0, item * found[1][0] * found[1][1], *found)

    tensor = PackedTensor("x", entry("weight", weight), None if scale is None else entry("weight_scale", scale))
    with pytest.raises(UnsupportedModelError, match="packed in a way") as refused:
        code_of(tensor, 8, 32)
    assert "GPTQ" in refused.value.fix
