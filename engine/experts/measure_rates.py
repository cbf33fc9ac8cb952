"""How fast this machine is at the work of an engine: `python -m engine.experts.measure_rates [--device cpu]`.

Takes some seconds for each format, in a process of its own, and prints one JSON object (`MeasuredRates`) on standard
output.
"""

import argparse
import sys

from engine.contract.errors import Problem, SplitpinError
from engine.contract.formats import WeightFormat
from engine.contract.units import MIB
from engine.threads import prepare_threads

BANK_MIB = 512


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns 0, or 2 with `{"problem": ...}` where it cannot be measured."""
    parser = argparse.ArgumentParser(prog="python -m engine.experts.measure_rates", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda", "simulated"), default="cpu")
    parser.add_argument("--gpu", metavar="UUID", help="as NVML names it; default: the first one")
    parser.add_argument("--bank-mib", type=int, default=BANK_MIB, metavar="N", help="size of the buffer of weights")
    parser.add_argument(
        "--formats", type=_formats, default=None, metavar="NAMES", help="such as bf16,nvfp4; default: bf16,fp32"
    )
    options = parser.parse_args(arguments)
    prepare_threads()
    from engine.experts.rates import FORMATS, measure  # loads torch, which reads the thread settings

    try:
        rates = measure(options.device, options.gpu, options.bank_mib * MIB, options.formats or FORMATS)
    except SplitpinError as error:
        _print(error.problem)
        return 2
    sys.stdout.write(rates.model_dump_json() + "\n")
    return 0


def _formats(text: str) -> tuple[WeightFormat, ...]:
    """Names of formats, each once.

    Raises:
        ArgumentTypeError: a name that is not known.
    """
    found = []
    for name in text.split(","):
        if name not in set(WeightFormat):
            raise argparse.ArgumentTypeError(f"{name!r} is no format the engine runs")
        found.append(WeightFormat(name))
    return tuple(dict.fromkeys(found))


def _print(problem: Problem) -> None:
    sys.stdout.write(f'{{"problem": {problem.model_dump_json()}}}\n')


if __name__ == "__main__":
    sys.exit(main())
