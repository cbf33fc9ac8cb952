"""How long packed experts take to unpack: `python tests/bench/unpacking.py [--against CHECKOUT] [--rounds 3]`.

One expert as Qwen3-30B-A3B has it, gate_up [1536, 2048] and down [2048, 768], into bf16; milliseconds, the fastest of
each round. `--against` runs the same with the engine of another checkout, in turns with this one, and prints ratios.
Beside it stands what computing one row with a bf16 expert of that size takes, by two calls. Fails nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch is loaded by the processes that measure, after their thread settings
    from torch import Tensor

    from engine.contract.checkpoint_packed import PackedTensor
    from engine.experts.dequant.code import MatrixCode, Pieces
    from tests.support.packed_weights import Packer

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
SHAPES = ((1536, 2048), (2048, 768))
HALVES = {
    "Q4_0": (18, 32, (0,)),
    "Q8_0": (34, 32, (0,)),
    "Q4_K": (144, 256, (0, 2)),
    "Q5_K": (176, 256, (0, 2)),
    "Q6_K": (210, 256, (208,)),
    "MXFP4": (17, 32, ()),
}  # fmt: skip  bytes and weights of a block, and where its float16 numbers are


def main() -> None:
    """Print a table, or with `--one` the figures of this process as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_figures()))
        return
    checkouts = [ROOT] if options.against is None else [ROOT, options.against]
    runs: list[list[dict[str, float]]] = [[] for _ in checkouts]
    for _ in range(options.rounds):
        for checkout, found in zip(checkouts, runs, strict=True):
            found.append(_child(checkout))
    best = [{name: min(one[name] for one in found) for name in found[0]} for found in runs]
    for name, ms in best[0].items():
        before = best[-1].get(name)
        ratio = "" if len(best) == 1 or before is None else f"   before {before:7.2f} ms   {before / ms:5.2f} times"
        print(f"{name:34} {ms:7.2f} ms{ratio}")


def _child(checkout: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    out = subprocess.run([sys.executable, str(HERE), "--one"], env=environment, cwd=checkout, check=True,
                         capture_output=True, text=True).stdout  # fmt: skip
    found: dict[str, float] = json.loads(out)
    return found


def _figures() -> dict[str, float]:
    from engine.threads import prepare_threads

    prepare_threads()
    import torch

    from tests.support import packed_weights as pack

    torch.manual_seed(1)
    packers: dict[str, pack.Packer] = {
        "fp8 blocks": pack.fp8_blocks("weight_scale_inv", torch.float32),
        "fp8 rows": pack.fp8_rows,
        "mxfp8": pack.mxfp8,
        "nvfp4 modelopt": pack.nvfp4_modelopt,
        "nvfp4 compressed-tensors": pack.nvfp4_compressed,
        "mxfp4": pack.mxfp4,
        "int8 rows": pack.int8_rows,
        "int4 packed, groups of 128": pack.packed_ints(4, 128, zeros=False),
        "int4 packed, zero points": pack.packed_ints(4, 128, zeros=True),
        "int8 packed": pack.packed_ints(8, 128, zeros=False),
        "gptq, 4 bits": pack.gptq(4, 128),
        "gptq, 4 bits, reordered": pack.gptq(4, 128, reordered=True),
        "gptq, 3 bits": pack.gptq(3, 128),
        "awq": pack.awq,
    }
    found = {name: _packed_ms(packer) for name, packer in packers.items()}
    found |= {f"gguf {name}": _gguf_ms(name) for name in HALVES}
    found["bf16: matrix times vector"] = _read_ms(lambda matrix, vector: torch.mv(matrix, vector))
    found["bf16: F.linear"] = _read_ms(lambda matrix, vector: torch.nn.functional.linear(vector[None], matrix))
    return found


def _packed_ms(packer: "Packer") -> float:
    import torch

    from engine.experts.dequant.code import Pieces, code_of

    total = 0.0
    for rows, columns in SHAPES:
        tensors, _ = packer(torch.Generator().manual_seed(1), rows, columns)
        raw = {f"x.{name}": tensor.contiguous().reshape(-1).view(torch.uint8) for name, tensor in tensors.items()}
        packed = _described(tensors)
        weight, scale, zero, order = (
            None if entry is None else raw[entry.name]
            for entry in (packed.weight, packed.scale, packed.zero, packed.order)
        )
        assert weight is not None
        whole = None if packed.whole is None else raw[packed.whole.name].view(torch.float32).reshape(())
        total += _unpack_ms(code_of(packed, rows, columns), Pieces(weight, scale, zero, order, whole))
    return total


def _described(tensors: "dict[str, Tensor]") -> "PackedTensor":
    import torch

    from engine.contract.checkpoint_headers import TensorEntry
    from engine.contract.checkpoint_packed import sort_packed
    from engine.experts.dequant.code import NUMBER_TYPES

    names = {dtype: name for name, dtype in NUMBER_TYPES.items()} | {torch.float8_e8m0fnu: "F8_E8M0"}
    entries = [
        TensorEntry(f"x.{name}", Path(), 0, tensor.nbytes, names[tensor.dtype], tuple(tensor.shape))
        for name, tensor in tensors.items()
    ]
    (packed,) = sort_packed(entries).packed.values()
    return packed


def _gguf_ms(name: str) -> float:
    import torch

    from engine.experts.dequant.code import MatrixCode, Pieces

    size, weights, halves = HALVES[name]
    total = 0.0
    for rows, columns in SHAPES:
        raw = torch.randint(100, 140, (rows * columns // weights, size)).to(torch.uint8)
        for at in halves:
            raw[:, at : at + 2] = torch.rand(len(raw), 1).half().view(torch.uint8)
        total += _unpack_ms(MatrixCode("gguf", rows, columns, name), Pieces(raw.flatten()))
    return total


def _unpack_ms(code: "MatrixCode", pieces: "Pieces") -> float:
    import torch

    from engine.experts.dequant.matrix import dequantise

    out = torch.empty(code.rows, code.columns, dtype=torch.bfloat16)
    with torch.inference_mode():
        return _best_ms(lambda: dequantise(code, pieces, out))


def _read_ms(call: "Callable[[Tensor, Tensor], object]") -> float:
    import torch

    experts = [[torch.full(shape, 0.01, dtype=torch.bfloat16) for shape in SHAPES] for _ in range(40)]
    vectors = [torch.full((columns,), 0.01, dtype=torch.bfloat16) for _, columns in SHAPES]

    def all_experts() -> None:
        for matrices in experts:
            for matrix, vector in zip(matrices, vectors, strict=True):
                call(matrix, vector)

    with torch.inference_mode():
        return _best_ms(all_experts) / len(experts)


def _best_ms(run: Callable[[], None], seconds: float = 0.4) -> float:
    run()
    times: list[float] = []
    while len(times) < 5 or sum(times) < seconds:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times) * 1e3


if __name__ == "__main__":
    main()
