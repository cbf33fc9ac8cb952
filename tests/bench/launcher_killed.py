"""Kill a launcher while its real engine answers, again and again; measure how long the engine outlives it.

    python -m tests.bench.launcher_killed --model DIR [--tries 20] [--limit-s 2]

Not part of the test run: each try loads the model. Exit code 1 if an engine outlived its launcher by the limit.
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from engine.contract.checkpoint import read_shape
from engine.contract.estimate import Costs, Split, ledger
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.processes import ProcessIdentity
from tests.app.supervision.test_launcher_killed import kill_while_answering
from tests.support.processes import lives, wait_until

GIVE_UP_S = 30.0


def cpu_plan(model: Path, context_tokens: int = 2048) -> MemoryPlan:
    """All layers locked, on the CPU."""
    shape = read_shape(model)
    tiers = (Tier.LOCKED,) * len(shape.moe_layers)
    split = Split(context_tokens=context_tokens, prefill_chunk=512, expert_slots=0, tiers=tiers, on_gpu=False)
    return MemoryPlan(
        model_dir=str(model),
        model=shape,
        device="cpu",
        context_tokens=context_tokens,
        prefill_chunk=512,
        expert_slots=0,
        tiers=tiers,
        ledger=ledger(shape, split, Costs()),
        budgets=dict.fromkeys(Pool),
    )


def _ended(engine: ProcessIdentity) -> bool:
    return not lives(engine)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--limit-s", type=float, default=2.0)
    options = parser.parse_args()
    plan = cpu_plan(options.model.absolute())
    worst_s, late = 0.0, 0
    with tempfile.TemporaryDirectory(prefix="splitpin-bench-") as folder:
        for number in range(options.tries):
            engine, killed = kill_while_answering(Path(folder) / str(number), plan, [])
            gone = wait_until(partial(_ended, engine), GIVE_UP_S)
            took_s = time.monotonic() - killed
            worst_s = max(worst_s, took_s)
            late += not gone or took_s > options.limit_s
            print(f"{number + 1:>3}: engine PID {engine.pid} {'gone' if gone else 'STILL THERE'} after {took_s:.2f} s")
    print(f"{options.tries - late} of {options.tries} within {options.limit_s} s, longest {worst_s:.2f} s")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
