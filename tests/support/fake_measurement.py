"""A child that measures nothing: `python -m tests.support.fake_measurement MODE`, for what a real one may do.

Modes: `refused`, `ended` (no last line), `hangs`, `noise`, `silent`, `problem`, `rates`.
"""

import json
import sys
import time

from engine.contract.errors import UsageError
from engine.contract.formats import WeightFormat
from engine.contract.probe import ProbeLine
from engine.contract.rates import AttentionRates, KernelRates, MeasuredRates
from engine.contract.units import GIB

RATES = MeasuredRates(
    device="CPU",
    threads=4,
    cpu={WeightFormat.BF16: KernelRates(bytes_s=2e10, flops_s=3e11)},
    attention=AttentionRates(token_flops_s=5e9, prompt_flops_s=5e10),
    call_s=2e-5,
    prompt_call_s=1e-4,
    memcpy_bytes_s=1e10,
    elapsed_s=3,
)


def _with_formats(arguments: list[str]) -> MeasuredRates:
    """The same figures for all formats that are asked for."""
    if "--formats" not in arguments:
        return RATES
    asked = arguments[arguments.index("--formats") + 1].split(",")
    return RATES.model_copy(update={"cpu": {WeightFormat(name): RATES.cpu[WeightFormat.BF16] for name in asked}})


def main(mode: str, arguments: list[str]) -> int:
    """Play one mode."""
    sys.stderr.write("x" * 200_000 + "\n")  # more than a pipe holds: somebody has to read it
    sys.stderr.flush()
    if mode == "silent":
        return 3
    if mode == "problem":
        problem = UsageError("It cannot begin.", "Begin otherwise.").problem
        line = ProbeLine(problem=problem).model_dump_json()
        print(line if "--vram" in arguments else json.dumps({"problem": problem.model_dump()}), flush=True)
        return 2
    if mode == "rates":
        print("a library says hello")
        print(_with_formats(arguments).model_dump_json())
        return 0
    if mode == "noise":
        print("a library says hello")
    for step in range(3):
        print(ProbeLine(pinned_bytes=step * GIB, elapsed_s=step).model_dump_json(), flush=True)
    if mode == "hangs":
        time.sleep(600)
    if mode in ("refused", "noise"):
        last = ProbeLine(pinned_bytes=2 * GIB, stopped="refused", refused_bytes=3 * GIB, words=" ".join(arguments))
        print(last.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
