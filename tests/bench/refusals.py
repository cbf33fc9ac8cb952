"""Random refusals and failures while loading: never a crash or a hang, and the report always tells what is held.

    python -m tests.bench.refusals [--scenarios 200] [--processes 10] [--limit-s 600] [--seed N]

Each scenario is one load of a tiny checkpoint on a simulated machine on which one thing goes wrong at a random moment:
pins or locks are refused from some byte on, a driver registers and copies nothing, memory is refused, the load is
cancelled, the disk fails, a file is too short. Either the load goes on, then the report equals what the drivers hold,
and the answer is the right one; or it fails with the error of that kind. After both nothing may be held, no thread may
be left, and another load must succeed: `--processes` of these are processes of their own on the real system.
Prints a table; exit code 1 after a failure. Stops early at the time limit, says so and fails.
"""

import argparse
import logging
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.support.refusal_scenarios import FAMILIES, KINDS, Scenarios
from tests.support.tiny_models import MAKERS, TinyModel

SHOWN = 20  # failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=200)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--limit-s", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("engine").setLevel(logging.ERROR)  # fallen layers are part of the exercise
    began, failures, done = time.monotonic(), list[str](), 0
    with tempfile.TemporaryDirectory(prefix="splitpin-refusals-") as name:

        @cache
        def tiny(family: str) -> TinyModel:
            return MAKERS[family](Path(name) / family)

        for family in FAMILIES:
            tiny(family)
        scenarios = Scenarios(tiny, Path(name), options.seed)
        kinds, every = list(KINDS), max(options.scenarios // max(options.processes, 1), 1)
        while done < options.scenarios and time.monotonic() - began < options.limit_s:
            kind = kinds[done % len(kinds)]
            in_process = options.processes > 0 and done % every == every - 1
            try:
                scenarios.run(kind, in_process=in_process)
            except Exception as error:  # noqa: BLE001 - one scenario that fails must not hide the others
                failures.append(f"scenario {done}, {kind}: {type(error).__name__}: {error}")
            done += 1
    tally = scenarios.tally
    print(f"{'what goes wrong':50} {'loaded':>7} {'failed as expected':>19} {'layers fallen':>14}")
    for kind in kinds:
        print(f"{kind:50} {tally.loaded[kind]:7} {tally.refused[kind]:19} {tally.fallen_layers[kind]:14}")
    took = f"{time.monotonic() - began:.0f} s, seed {options.seed}"
    print(f"{done} of {options.scenarios} scenarios, {tally.retries_in_processes} retries in processes, {took}")
    print("\n".join(failures[:SHOWN]) or "nothing crashed, hung, stayed or was told wrongly")
    return 1 if failures or done < options.scenarios else 0


if __name__ == "__main__":
    sys.exit(main())
