"""How long planning takes: `python -m tests.bench.planning`. Prints, and fails nothing: times depend on the PC.

One stop of the slider planned anew for a model of 94 layers (aim: 1 ms), all its stops, and `plan` as a whole process
beyond the start of Python itself (aim: 0.4 s).
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from app.planning.planner import make_plan
from app.planning.stops import slider_stops
from app.planning.wishes import Wishes
from tests.support.machines import gib_bytes, gpu, machine, measured
from tests.support.model_configs import QWEN3_235B, folder_with, shape_of

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ROOT / "tests" / "machines" / "desktop_192gb_rtx5090.json"
PROCESSES = 7
REPEATS = 200


def main() -> None:
    """Print the three times."""
    with tempfile.TemporaryDirectory() as folder:
        one, stops, count = _in_process(Path(folder))
        print(f"one stop of 94 layers: {one * 1e3:.2f} ms (aim 1 ms); all {count} stops: {stops * 1e3:.1f} ms")
        model = folder_with(QWEN3_235B, Path(folder) / "model")
        plan = _process([sys.executable, "-m", "app", "--profile-dir", folder, "plan", "--model", str(model),
                         "--machine", str(MACHINE), "--json"])  # fmt: skip
        bare = _process([sys.executable, "-c", "pass"])
        print(f"plan: {plan:.2f} s, of which Python's start {bare:.2f} s: {plan - bare:.2f} s (aim 0.4 s)")
        print(json.dumps({"one_stop_ms": one * 1e3, "stops_ms": stops * 1e3, "stops": count, "plan_s": plan - bare}))


def _in_process(folder: Path) -> tuple[float, float, int]:
    shape = shape_of(QWEN3_235B, folder / "q")
    facts = machine(gib_bytes(512), gpu(gib_bytes(96)), pin_measured=measured(gib_bytes(200)))
    stops = slider_stops(shape, facts, Wishes())
    tokens = [stop.context_tokens for stop in stops.stops]

    def one() -> None:
        make_plan(shape, facts, Wishes(context_tokens=tokens[len(tokens) // 2]), model_dir="x")

    return _median(one, REPEATS), _median(lambda: slider_stops(shape, facts, Wishes()), 20), len(tokens)


def _process(argv: list[str]) -> float:
    return _median(lambda: subprocess.run(argv, cwd=ROOT, check=False, capture_output=True), PROCESSES)


def _median(run: Callable[[], object], times: int) -> float:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
