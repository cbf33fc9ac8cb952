"""How long the experts of one token take: `python -m tests.bench.expert_kernels [--formats NAMES] [--threads 2]`.

One layer as Qwen3-30B-A3B has it, gate_up [1536, 2048] and down [2048, 768], 8 experts out of a pool that is larger
than the caches. For each format: unpacking and torch (the reference), the C kernels, and `torch.mv` with as many bf16
weights, in turns; medians in milliseconds, GB/s of stored bytes, and ratios, for absolute figures move with what else
the machine does. `unpacked` is one expert into bf16, what prompts need. Fails nothing.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch is loaded after the thread settings
    import torch
    from torch import Tensor

    from engine.experts.dequant.code import MatrixCode, Pieces
    from engine.system.native_library import NativeLibrary
    from engine.system.protocols import PackedProduct

SHAPES = ((1536, 2048), (2048, 768))
ACTIVE = 8
GGUF = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """A way of storing, for matrices of any size."""

    kind: str
    dtype: str
    scale: str | None = None
    wide: int = 0  # columns that share a scale, 0: the row
    tall: int = 1
    bits: int = 0
    zeros: bool = False
    mixed: bool = False  # columns are in groups in any order
    whole: float | None = None


FORMATS = {
    "mxfp4": Format("fp4", "U8", "U8", 32),
    "nvfp4": Format("fp4", "U8", "F8_E4M3", 16, whole=0.001),
    "fp8 blocks": Format("fp8", "F8_E4M3", "F32", 128, 128),
    "fp8 rows": Format("fp8", "F8_E4M3", "BF16"),
    "mxfp8": Format("fp8", "F8_E4M3", "U8", 32),
    "int8 rows": Format("int8", "I8", "BF16", bits=8),
    "packed int4 g128": Format("packed", "I32", "BF16", 128, bits=4),
    "packed int4 g32 zeros": Format("packed", "I32", "BF16", 32, bits=4, zeros=True),
    "packed int8 g128": Format("packed", "I32", "BF16", 128, bits=8),
    "gptq int4 g128": Format("gptq", "I32", "F16", 128, bits=4, zeros=True),
    "gptq int4 g128 mixed": Format("gptq", "I32", "F16", 128, bits=4, zeros=True, mixed=True),
    "gptq int8 g128": Format("gptq", "I32", "F16", 128, bits=8, zeros=True),
    "awq int4 g128": Format("awq", "I32", "F16", 128, bits=4, zeros=True),
    **{f"gguf {name.lower()}": Format("gguf", name) for name in GGUF},
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default=",".join(FORMATS), metavar="NAMES", help="separated by commas")
    parser.add_argument("--instructions", default="", metavar="NAME", help="avx2 or avx512; default: the best")
    parser.add_argument("--threads", type=int, default=None, metavar="N", help="default: as the engine has them")
    parser.add_argument("--pool-mib", type=int, default=256, metavar="N", help="weights of each format")
    parser.add_argument("--rounds", type=int, default=40, help="10 at least; the reference takes part in every tenth")
    options = parser.parse_args()
    from engine.threads import prepare_threads

    prepare_threads()
    import torch

    from engine.system.native_library import FOLDER, INSTRUCTION_SETS, NAME, NativeLibrary

    instructions = (options.instructions,) if options.instructions else INSTRUCTION_SETS
    library = NativeLibrary(FOLDER / NAME, instructions)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    rounds = max(options.rounds, 10)
    counts = f"medians of {rounds} rounds, reference {rounds // 10}"
    print(f"{library.instructions}, {torch.get_num_threads()} threads, {counts}")
    print(" " * 23 + "reference   native   GB/s ref/native  mv bf16 mv/native unpacked")
    with torch.inference_mode():
        plain = PlainPool(options.pool_mib * 4)
        for name in options.formats.split(","):
            found = _measured(Pool(name, options.pool_mib, library), plain, rounds)
            print(f"{name:22} {found}", flush=True)


def _measured(pool: "Pool", plain: "PlainPool", rounds: int) -> str:
    steps: dict[str, Callable[[], object]] = {"native": pool.native, "mv": plain.step, "unpacked": pool.unpacked}
    times: dict[str, list[float]] = {name: [] for name in (*steps, "reference")}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            times[name].append(_ms(step))
        if turn % 10 == 0:  # it takes as long as all others together
            times["reference"].append(_ms(pool.reference))
    median = {name: statistics.median(found[1:]) for name, found in times.items()}
    rate = ACTIVE * pool.expert_bytes / median["native"] / 1e6
    return (
        f"{median['reference']:9.1f} {median['native']:8.2f} {rate:6.1f} {median['reference'] / median['native']:10.1f}"
        f" {median['mv']:8.2f} {median['mv'] / median['native']:9.2f} {median['unpacked']:8.2f}"
    )


def _ms(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return (time.perf_counter() - began) * 1e3


class PlainPool:
    """bf16 experts."""

    def __init__(self, mib: int) -> None:
        import torch

        count = mib * 2**20 // (2 * sum(rows * columns for rows, columns in SHAPES))
        self._experts = [[torch.full(shape, 0.01, dtype=torch.bfloat16) for shape in SHAPES] for _ in range(count)]
        self._turns = _turns(count)
        self._row = torch.randn(SHAPES[0][1]).bfloat16()

    def step(self) -> None:
        """One token."""
        import torch

        for expert in next(self._turns):
            up, down = self._experts[expert]
            torch.mv(down, _activated(torch.mv(up, self._row)))


class Pool:
    """Experts of one format, one behind the other: the same bytes in other memory."""

    def __init__(self, name: str, mib: int, library: "NativeLibrary") -> None:
        import torch

        self._packed = [_matrix(FORMATS[name], rows, columns) for rows, columns in SHAPES]
        parts: list[Tensor] = []
        places = [self._place(pieces, parts) for _, pieces in self._packed]
        record = torch.cat(parts)
        self.expert_bytes = sum(raw.numel() for _, pieces in self._packed for raw in _raw(pieces) if raw is not None)
        self._records = record.repeat(max(2 * ACTIVE, mib * 2**20 // record.numel()), 1)
        self._wholes = torch.full((len(self._records),), FORMATS[name].whole or 1.0)
        self._products = [
            _compiled(library, code, place, self._wholes.data_ptr() if FORMATS[name].whole else 0)
            for (code, _), place in zip(self._packed, places, strict=True)
        ]
        self._turns = _turns(len(self._records))
        self._row = torch.randn(1, SHAPES[0][1])
        self._hidden = torch.empty(ACTIVE, SHAPES[0][0])
        self._out = torch.empty(ACTIVE, SHAPES[1][0])
        self._weights = [torch.empty(shape, dtype=torch.bfloat16) for shape in SHAPES]

    def native(self) -> None:
        """One token: all experts in two calls."""
        from engine.system.protocols import KernelTask

        threads, chosen = _threads(), next(self._turns)
        places = [self._records[expert].data_ptr() for expert in chosen]
        tasks = [
            KernelTask(place, self._row.data_ptr(), hidden.data_ptr(), expert, 1)
            for place, hidden, expert in zip(places, self._hidden, chosen, strict=True)
        ]
        self._products[0].product(tasks, SHAPES[0][0], threads)
        rows = _activated(self._hidden)
        tasks = [
            KernelTask(place, row.data_ptr(), out.data_ptr(), expert, 1)
            for place, row, out, expert in zip(places, rows, self._out, chosen, strict=True)
        ]
        self._products[1].product(tasks, SHAPES[1][0], threads)

    def reference(self) -> None:
        """One token: each expert is unpacked, then computed."""
        import torch

        from engine.experts.dequant.matrix import dequantise

        for _ in range(ACTIVE):
            for (code, pieces), weights in zip(self._packed, self._weights, strict=True):
                dequantise(code, pieces, weights)
            torch.mv(self._weights[1], _activated(torch.mv(self._weights[0], self._row[0].bfloat16())))

    def unpacked(self) -> None:
        """One expert into bf16."""
        expert = next(self._turns)[0]
        for product, weights in zip(self._products, self._weights, strict=True):
            record = self._records[expert].data_ptr()
            product.unpack(record, expert, weights.data_ptr(), "bfloat16", weights.shape[1], _threads())

    @staticmethod
    def _place(pieces: "Pieces", parts: "list[Tensor]") -> list[int | None]:
        """Put the pieces into the record, each at a multiple of 64 bytes."""
        import torch

        places: list[int | None] = []
        for raw in _raw(pieces):
            places.append(None if raw is None else sum(part.numel() for part in parts))
            if raw is not None:
                parts += [raw, torch.zeros(-raw.numel() % 64, dtype=torch.uint8)]
        return places


def _raw(pieces: "Pieces") -> "tuple[Tensor | None, ...]":
    return pieces.weight, pieces.scale, pieces.zero, pieces.order


def _turns(count: int) -> Iterator[list[int]]:
    """Experts that were not used for the longest time."""
    first = 0
    while True:
        yield [(first + step) % count for step in range(ACTIVE)]
        first += ACTIVE


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _activated(gate_up: "torch.Tensor") -> "torch.Tensor":
    import torch.nn.functional as F  # noqa: N812

    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def _matrix(form: Format, rows: int, columns: int) -> "tuple[MatrixCode, Pieces]":
    """Random bytes."""
    import numpy as np
    import torch

    from engine.experts.dequant.code import MatrixCode, Pieces
    from tests.support.gguf_rows import random_gguf_rows
    from tests.support.native_matrices import random_matrix

    if form.kind == "gguf":
        raw = random_gguf_rows(np.random.default_rng(1), form.dtype, rows, columns)
        return MatrixCode("gguf", rows, columns, form.dtype), Pieces(torch.from_numpy(raw).flatten())
    wide = form.wide or columns
    code = MatrixCode(form.kind, rows, columns, form.dtype, form.scale, (form.tall, wide), form.bits)  # type: ignore[arg-type]
    order = (torch.arange(columns) // wide)[torch.randperm(columns)] if form.mixed else None
    random = torch.Generator().manual_seed(1)
    packed = random_matrix(code, random, zeros=form.zeros, order=order, whole=form.whole)
    return code, packed.pieces


def _compiled(
    library: "NativeLibrary", code: "MatrixCode", places: Sequence[int | None], wholes: int
) -> "PackedProduct":
    from engine.experts.native_kernel import described

    found = library.compile([described(code, places, wholes)])
    assert found is not None, f"{code} is not known"
    return found


if __name__ == "__main__":
    main()
