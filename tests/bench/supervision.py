"""Start engines and end them in every way there is; nothing may be left.

    python -m tests.bench.supervision [--cycles 300] [--real 6] [--limit-s 600] [--seed N]

Each cycle is one life of an engine: start, load, answer, and an end drawn by chance. Afterwards no process, port, file
of the ledger or locked byte may be left. `--real` of the cycles run the real engine with a tiny checkpoint, the others
the engine without torch. Prints a table; exit code 1 after a failure. Stops early at the time limit and says so.
"""

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from engine.contract.units import MIB
from tests.support.cycles import ENDS, LONG_ANSWER, Bench, LeftOverError, run_cycle
from tests.support.full_disk import SmallDisk
from tests.support.processes import wait_until
from tests.support.tiny_plan import tiny_plan

LOCKED_MIB = 4  # of the engine without torch
NOISE_BYTES = 8 * MIB  # locked by other programs between one look and the next


def fake_argv() -> list[str]:
    """The engine without torch, which locks some memory for its life."""
    options = ("--reply", LONG_ANSWER, "--layer-delay-ms", "1", "--lock-mib", str(LOCKED_MIB))
    return [sys.executable, "-m", "tests.support.fake_engine", *options]


def locked_by_nobody() -> int | None:
    """Locked memory of the machine that no living process accounts for; None where the system does not tell."""
    proc = Path("/proc")
    try:
        lines = (proc / "meminfo").read_text("utf-8").splitlines()
    except OSError:
        return None
    locked = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Mlocked:"))
    for process in proc.iterdir():
        with suppress(OSError):  # it has ended meanwhile
            if process.name.isdigit():
                status = (process / "status").read_text("utf-8", errors="replace").splitlines()
                locked -= sum(int(line.split()[1]) * 1024 for line in status if line.startswith("VmLck:"))
    return max(locked, 0)


def _real_bench(folder: Path, disk: SmallDisk, chance: random.Random) -> Bench:
    from tests.support.tiny_models import mixtral, plan_for  # loads torch: only where it is asked for

    model = mixtral(folder / "model")
    return Bench(folder, disk, plan_for(model, "llpl"), None, chance)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--real", type=int, default=6)
    parser.add_argument("--limit-s", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    started, before = time.monotonic(), locked_by_nobody()
    times: defaultdict[str, list[float]] = defaultdict(list)
    failures: list[str] = []
    logging.getLogger("app").setLevel(logging.ERROR)  # full disks are part of the exercise
    with tempfile.TemporaryDirectory(prefix="splitpin-bench-") as name, SmallDisk(Path(name) / "runs") as disk:
        print(f"a full disk is {disk.words}")
        fake = Bench(Path(name), disk, tiny_plan(), fake_argv(), chance)
        real = _real_bench(Path(name), disk, chance) if options.real else fake
        kinds = [*["real"] * options.real, *["fake"] * (options.cycles - options.real)]
        for number, kind in enumerate(kinds):
            if time.monotonic() - started > options.limit_s:
                break
            bench = real if kind == "real" else fake
            end = list(ENDS)[number % len(ENDS)] if number < 2 * len(ENDS) else chance.choice(list(ENDS))
            try:
                run_cycle(bench, ENDS[end])
                times[f"{end}{', real engine' if kind == 'real' else ''}"].append(bench.gone_s)
            except LeftOverError as left:
                failures.append(f"cycle {number}, {kind}, {end}: {left}")
                print(failures[-1], flush=True)
    done = sum(map(len, times.values())) + len(failures)
    print(f"{'end':<40} {'cycles':>6} {'mean s':>8} {'most s':>8}")
    for end, seconds in sorted(times.items()):
        print(f"{end:<40} {len(seconds):>6} {sum(seconds) / len(seconds):>8.2f} {max(seconds):>8.2f}")
    if before is not None:
        if not wait_until(lambda: (locked_by_nobody() or 0) <= before + NOISE_BYTES, 10):
            failures.append("locked memory is left that belongs to no process")
        print(f"locked memory of no living process: {before:,} bytes before, {locked_by_nobody():,} after")
    print(f"{done} of {options.cycles} cycles in {time.monotonic() - started:.0f} s, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
