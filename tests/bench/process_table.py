"""What a look for left-over processes costs.

    python -m tests.bench.process_table [--processes 400] [--rounds 20] [--limit-ms 50]

Reads the live table and judges it, again and again; the cost is scaled to `--processes` of them. CPU time is what
counts: a computer that is busy with other things makes every program wait. Exit code 1 above the limit.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from app.orphans.classify import classify
from engine.system.select import process_reader

Found = TypeVar("Found")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--limit-ms", type=float, default=50)
    options = parser.parse_args()
    reader = process_reader()
    read, judged, walls, counts = [], [], [], []
    for _ in range(options.rounds):
        wall = time.perf_counter()
        table, read_ms = _timed(partial(reader.read, (), ()))
        walls.append((time.perf_counter() - wall) * 1000)
        read.append(read_ms)
        judged.append(_timed(partial(classify, table))[1])
        counts.append(len(table.processes))
    count = statistics.median(counts)
    total = statistics.median(read) + statistics.median(judged)
    scaled = total * options.processes / count
    print(
        f"{count:.0f} processes: {statistics.median(read):.1f} ms to read, {statistics.median(judged):.1f} ms to judge"
    )
    print(f"by the clock, reading took {statistics.median(walls):.1f} ms (best {min(walls):.1f} ms)")
    print(f"{options.processes} processes: {scaled:.1f} ms of CPU, limit {options.limit_ms:.0f} ms")
    return 0 if scaled <= options.limit_ms else 1


def _timed(call: Callable[[], Found]) -> tuple[Found, float]:
    started = time.process_time()
    found = call()
    return found, (time.process_time() - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
