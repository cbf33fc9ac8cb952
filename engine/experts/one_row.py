"""The product of a decoding step, one row times a matrix: which of torch's calls is faster differs by CPU.

`torch.mv` was seen 1.4 times as fast as `F.linear` for bf16 on a server CPU with AMX, and half as fast on one without
(tests/bench/unpacking.py shows both). So it is measured once in a process, with matrices of the model, and not changed
afterwards: every tier that the CPU computes has to round alike.
"""

import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

LEAST_BYTES = 1 << 20  # of a matrix: with smaller ones the calls themselves take the time
_GAIN = 1.2  # what the other call must be faster by
_ROUNDS = 3
_by_mv: dict[torch.dtype, bool] = {}


def one_row(row: Tensor, matrix: Tensor) -> Tensor:
    """[1, M] times [N, M] transposed, [1, N]."""
    if matrix.device.type == "cpu" and _by_mv.get(matrix.dtype, False):
        return torch.mv(matrix, row[0])[None]
    return F.linear(row, matrix)


def choose_call(matrices: Sequence[Tensor]) -> None:
    """Settle the call for the number type of these matrices [N, M] in RAM; harmless if it is settled or they are small.

    Reads each of them some times; together they should be larger than the caches.
    """
    if not matrices or matrices[0].dtype in _by_mv or matrices[0].nbytes < LEAST_BYTES:
        return
    row = torch.zeros(1, matrices[0].shape[1], dtype=matrices[0].dtype)
    times: dict[str, list[float]] = {"linear": [], "mv": []}
    with torch.inference_mode():
        for _ in range(_ROUNDS + 1):  # in turns, as other programs come and go
            times["linear"].append(_seconds(lambda matrix: F.linear(row, matrix), matrices))
            times["mv"].append(_seconds(lambda matrix: torch.mv(matrix, row[0]), matrices))
    linear, mv = (min(found[1:]) for found in times.values())  # the first round compiles
    _by_mv[matrices[0].dtype] = mv * _GAIN < linear


def _seconds(run: Callable[[Tensor], object], matrices: Sequence[Tensor]) -> float:
    began = time.perf_counter()
    for matrix in matrices:
        run(matrix)
    return time.perf_counter() - began
