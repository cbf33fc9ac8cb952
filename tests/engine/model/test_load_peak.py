"""The peak of a load that a plan counts is not exceeded by a real load, as the system counts it."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.planning.planner import make_plan
from app.planning.wishes import Wishes
from engine.contract.checkpoint import read_shape
from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
from engine.contract.units import KIB, MIB
from tests.support.machines import gib_bytes, machine

LOAD = """
import sys
from engine.threads import prepare_threads
prepare_threads()
from pathlib import Path
from engine.contract.plan import MemoryPlan
from engine.model.build import load_model
plan = MemoryPlan.model_validate_json(Path(sys.argv[1]).read_bytes())
load_model(plan, report=lambda event: None, cancelled=lambda: False).close()
status = Path("/proc/self/status").read_text()  # ru_maxrss would count the process that started this one
print(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
"""


def _peak_bytes(plan: MemoryPlan, folder: Path) -> int:
    file = folder / "plan.json"
    file.write_text(plan.model_dump_json(), "utf-8")
    done = subprocess.run([sys.executable, "-c", LOAD, str(file)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) * KIB


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
@pytest.mark.parametrize("simulated", [None, SimulatedGpu(vram_bytes=700 * MIB, pin_bytes=300 * MIB)])
def test_a_load_stays_below_its_planned_peak(demo_model: Path, tmp_path: Path, simulated: SimulatedGpu | None) -> None:
    shape = read_shape(demo_model)
    wishes = Wishes(context_tokens=4096, simulated_gpu=simulated)
    plan = make_plan(shape, machine(gib_bytes(16)), wishes, model_dir=str(demo_model))
    if simulated is not None:
        assert {Tier.VRAM, Tier.PINNED, Tier.LOCKED} <= set(plan.tiers)
    in_host_memory = plan.pool_bytes(Pool.VRAM)  # a simulated GPU is made of RAM
    peak = _peak_bytes(plan, tmp_path)
    assert sum(plan.pool_bytes(pool) for pool in (Pool.PINNED, Pool.LOCKED)) < peak
    assert peak <= plan.load_peak[Pool.RAM] + in_host_memory
