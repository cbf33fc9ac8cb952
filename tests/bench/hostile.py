"""Time and memory of the answer to a damaged model folder: `python -m tests.bench.hostile [folders]`, one JSON line.

The aim is 50 ms and 64 MiB for each. Memory is measured in a second pass, as measuring it takes time.
"""

import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from random import Random

from engine.contract.checkpoint import read_shape
from engine.contract.errors import SplitpinError
from tests.support.hostile import HOSTILE


def _read(folder: Path) -> bool:
    """Whether there is a shape."""
    try:
        read_shape(folder)
    except SplitpinError:
        return False
    return True


def _measure(kind: str, seed: int) -> tuple[float, int, bool]:
    """Milliseconds, most bytes allocated, whether there is a shape."""
    with tempfile.TemporaryDirectory(prefix="splitpin-hostile-") as name:
        folder = Path(name)
        HOSTILE[kind](folder, Random(seed))
        began = time.perf_counter()
        read = _read(folder)
        took_ms = (time.perf_counter() - began) * 1000
        tracemalloc.start()
        _read(folder)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return took_ms, peak, read


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    result = {}
    for kind in HOSTILE:
        found = [_measure(kind, seed) for seed in range(count)]
        times = sorted(took_ms for took_ms, _, _ in found)
        result[kind] = {
            "folders": count,
            "read": sum(read for _, _, read in found),
            "median_ms": round(statistics.median(times), 2),
            "p99_ms": round(times[int(count * 0.99)], 2),
            "most_ms": round(times[-1], 2),
            "over_50_ms": sum(took_ms > 50 for took_ms in times),
            "most_kib": max(peak for _, peak, _ in found) >> 10,
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
