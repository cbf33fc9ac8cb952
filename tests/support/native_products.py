"""Computes tests/reference/native_products.json with a library of engine/native, by nothing but the standard library:
the Windows interpreter under Wine has no torch.
"""

import base64
import ctypes
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.system.native_library import NativeLibrary
from engine.system.protocols import KernelTask, NumberType, PackedMatrix

_FILE = Path(__file__).parents[1] / "reference" / "native_products.json"
_NUMBER_BYTES: dict[NumberType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


def cases() -> dict[str, Any]:
    """By name."""
    found: dict[str, Any] = json.loads(_FILE.read_text("utf-8"))
    return found


def differences(library: NativeLibrary, case: dict[str, Any], threads: int) -> Iterator[str]:
    """What the library computes otherwise than the reference did."""
    code, raws = case["code"], [None if text is None else base64.b64decode(text) for text in case["pieces"]]
    rows, columns = code["rows"], code["columns"]
    record = ctypes.create_string_buffer(b"".join(raw or b"" for raw in raws))
    whole = ctypes.c_float(case["whole"] or 1.0)
    places: list[int | None] = []
    end = 0
    for raw in raws:
        places.append(None if raw is None else end)
        end += len(raw or b"")
    compiled = library.compile([
        PackedMatrix(
            kind=code["kind"], dtype=code["dtype"], scale_dtype=code["scale_dtype"] or "", rows=rows, columns=columns,
            tile=tuple(code["tile"]), bits=code["bits"], zero_step=code["zero_step"], divides=code["divides"],
            first_row=0, row_step=1, pieces=tuple(places),
            wholes=0 if case["whole"] is None else ctypes.addressof(whole),
        )
    ])  # fmt: skip
    if compiled is None:
        yield "not known"
        return
    for number, size in _NUMBER_BYTES.items():
        out = ctypes.create_string_buffer(rows * columns * size)
        compiled.unpack(ctypes.addressof(record), 0, ctypes.addressof(out), number, columns, threads)
        if hashlib.sha256(out.raw).hexdigest() != case[number]:
            yield f"unpacked to {number}"
    tokens = len(case["product"])
    values = (ctypes.c_float * (tokens * columns))(*((place * 37 % 101 - 50) / 64 for place in range(tokens * columns)))
    sums = (ctypes.c_float * (tokens * rows))()
    compiled.product([_task(record, values, sums, tokens)], rows, threads)
    for token in range(tokens):
        for row in range(rows):
            off = abs(sums[token * rows + row] - case["product"][token][row])
            if not off <= 1e-6 * case["size"][token][row]:
                yield f"row {row} of token {token}: off by {off}"


def _task(record: Any, values: Any, sums: Any, tokens: int) -> KernelTask:
    return KernelTask(ctypes.addressof(record), ctypes.addressof(values), ctypes.addressof(sums), 0, tokens)
