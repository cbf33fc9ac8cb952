"""Writes native_products.json: packed matrices with what engine/experts/dequant makes of them, for a Windows without
torch. `python -m tests.reference.make_native_products`
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.experts.dequant.code import MatrixCode, Pieces
from tests.support.gguf_rows import random_gguf_rows
from tests.support.native_matrices import Packed, random_matrix

FILE = Path(__file__).with_name("native_products.json")
ROWS, COLUMNS, TOKENS = 7, 512, 3
GGUF = ("Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4")
OTHERS = {
    "mxfp4": MatrixCode("fp4", ROWS, COLUMNS, "U8", "U8", (1, 32)),
    "nvfp4": MatrixCode("fp4", ROWS, COLUMNS, "U8", "F8_E4M3", (1, 16)),
    "fp8 blocks": MatrixCode("fp8", ROWS, COLUMNS, "F8_E4M3", "F32", (128, 128)),
    "packed int4": MatrixCode("packed", ROWS, COLUMNS, "I32", "BF16", (1, 64), 4),
    "gptq": MatrixCode("gptq", 8, COLUMNS, "I32", "F16", (1, 64), 4, zero_step=1),
    "awq": MatrixCode("awq", 8, COLUMNS, "I32", "F16", (1, 64), 4),
}


def activation(place: int) -> float:
    """A number that float32 holds exactly."""
    return (place * 37 % 101 - 50) / 64


def matrices() -> Iterator[tuple[str, Packed]]:
    """Name and matrix."""
    for name in GGUF:
        raw = torch.from_numpy(random_gguf_rows(np.random.default_rng(11), name, ROWS, COLUMNS)).flatten()
        yield f"gguf {name}", Packed(MatrixCode("gguf", ROWS, COLUMNS, name), Pieces(raw))
    for name, code in OTHERS.items():
        random = torch.Generator().manual_seed(12)
        zeros = name in ("gptq", "awq")
        packed = random_matrix(code, random, zeros=zeros, whole=0.0375 if name == "nvfp4" else None)
        if code.kind == "fp8":
            packed.pieces.weight[packed.pieces.weight & 0x7F == 0x7F] = 0x2C  # what is no number has many bit patterns
        yield name, packed


def _text(raw: Tensor | None) -> str | None:
    return None if raw is None else base64.b64encode(raw.contiguous().numpy().tobytes()).decode()


def main() -> None:
    """Write the file."""
    rows = torch.tensor([activation(place) for place in range(TOKENS * COLUMNS)]).view(TOKENS, COLUMNS).double()
    found = {}
    for name, packed in matrices():
        weights, pieces = packed.weights(), packed.pieces
        found[name] = {
            "code": asdict(packed.code),
            "pieces": [_text(raw) for raw in (pieces.weight, pieces.scale, pieces.zero, pieces.order)],
            "whole": None if pieces.whole is None else float(pieces.whole),
            "float32": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
            "bfloat16": hashlib.sha256(weights.bfloat16().view(torch.int16).numpy().tobytes()).hexdigest(),
            "float16": hashlib.sha256(weights.half().numpy().tobytes()).hexdigest(),
            "product": (rows @ weights.double().T).tolist(),
            "size": (rows.abs() @ weights.double().abs().T).tolist(),
        }
    FILE.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
