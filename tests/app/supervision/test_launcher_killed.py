"""The launcher is killed without a word while its engine answers: the engine ends, and the ledger remembers."""

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from app.orphans.classify import classify
from app.supervision.ledger import RunLedger
from app.supervision.scan import Scanner
from engine.contract.plan import MemoryPlan
from engine.contract.processes import ProcessIdentity
from tests.app.supervision.recorder import fake_engine
from tests.support.processes import lives, wait_until
from tests.support.tiny_plan import tiny_plan

LONG_ANSWER = " ".join(["word"] * 2000)
TRIES = 3


def kill_while_answering(folder: Path, plan: MemoryPlan, engine_argv: list[str]) -> tuple[ProcessIdentity, float]:
    """Start a launcher with an engine, ask, kill the launcher after the first piece of the answer.

    Returns the engine, which lived until then, and the monotonic time of the kill.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plan_file = folder / "plan.json"
    plan_file.write_text(plan.model_dump_json(), "utf-8")
    command = [sys.executable, "-m", "tests.support.bare_launcher", str(folder / "runs"), str(plan_file), *engine_argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as launcher:
        assert launcher.stdout is not None
        told = json.loads(launcher.stdout.readline())
        engine = ProcessIdentity(pid=told["pid"], create_time=told["create_time"])
        body = {"messages": [{"role": "user", "content": "Count to a thousand."}], "stream": True, "max_tokens": 400}
        with (
            httpx.Client(trust_env=False, timeout=60) as client,
            client.stream("POST", f"{told['api_base']}/chat/completions", json=body) as answer,
        ):
            answer.raise_for_status()
            pieces = answer.iter_text()
            while '"content"' not in next(pieces):
                pass
            assert lives(engine)
            killed = time.monotonic()
            launcher.kill()
            launcher.wait()
    return engine, killed


@pytest.mark.parametrize("attempt", range(TRIES))
def test_the_engine_dies_with_its_launcher(tmp_path: Path, attempt: int) -> None:
    engine, _ = kill_while_answering(tmp_path, tiny_plan(), fake_engine("--reply", LONG_ANSWER))
    assert wait_until(lambda: not lives(engine), timeout_s=10)
    runs = RunLedger(tmp_path / "runs")
    assert [entry.engine.pid for entry in runs.read()] == [engine.pid], "a crash leaves its entry"
    scanner = Scanner(runs)
    assert not [orphan for orphan in classify(scanner.table()).orphans if engine.pid in orphan.pids]
    scanner.scan()
    assert runs.read() == (), "the next scan sees that nothing is left and forgets the run"
