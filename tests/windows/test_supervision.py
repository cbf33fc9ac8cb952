"""An engine under a launcher on Windows: job, pipes, ledger, ends and ports as they are there."""

import os
import random
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.orphans.classify import classify
from app.supervision.ledger import RunLedger
from app.supervision.ports import PortTakenError, check_port
from app.supervision.scan import Scanner
from engine.contract.processes import ProcessIdentity, RunEntry
from engine.system.pdh import gpu_use_by_pid
from engine.system.ports import PortRefusal, try_port
from engine.system.select import live_memory, process_reader
from tests.app.supervision.recorder import Recorder, fake_engine
from tests.support.cycles import ENDS, Bench, run_cycle
from tests.support.full_disk import SmallDisk
from tests.support.processes import lives, wait_until
from tests.support.tiny_plan import tiny_plan

pytestmark = [
    pytest.mark.windows,
    pytest.mark.skipif(os.name != "nt", reason="needs Windows or the Windows interpreter under Wine"),
]

# Greets as an engine does, starts a worker through a middleman that ends at once, and waits.
BREEDS = """
import json, os, subprocess, sys
run = sys.argv[sys.argv.index("--run-id") + 1]
print(json.dumps(dict(event="hello", wire=1, engine_version="x", pid=os.getpid(), run_id=run)), flush=True)
nap = "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(600)"
middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {nap!r}])"
subprocess.run([sys.executable, "-c", middle])
sys.stdin.read()
"""


def _worker(engine: Recorder) -> ProcessIdentity:
    assert wait_until(lambda: any(line.isdigit() for line in engine.lines), 60)
    pid = int(next(line for line in engine.lines if line.isdigit()))
    return ProcessIdentity(pid=pid, create_time=psutil.Process(pid).create_time())


def test_a_worker_whose_parent_has_ended_reaches_the_ledger_and_ends_with_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.supervision.engine_child.REFRESH_S", 0.2)
    with Recorder(tmp_path, [sys.executable, "-c", BREEDS]) as engine:
        worker = _worker(engine)

        def recorded() -> bool:
            return any(child.pid == worker.pid for entry in engine.ledger.read() for child in entry.children)

        assert wait_until(recorded, 60)
        engine.child.stop()
        assert engine.ended(60) is None
        assert not lives(worker)
        assert engine.ledger.read() == ()


def test_stopped_is_told_with_what_came_back(tmp_path: Path) -> None:
    with Recorder(tmp_path, fake_engine()) as engine:
        engine.wait_for("ready", 60)
        engine.child.stop()
        assert engine.ended(60) is None
    back = engine.child.memory_return
    assert back is not None and back.settled
    assert back.vram_bytes is None or back.vram_bytes >= 0


@pytest.mark.parametrize("end", list(ENDS))
def test_nothing_is_left_after(end: str, tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "runs") as disk:
        run_cycle(Bench(tmp_path, disk, tiny_plan(), fake_engine(), random.Random(end)), ENDS[end])


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_t16_a_taken_port_is_found_although_windows_could_share_it(taken: int) -> None:
    assert try_port(taken) is PortRefusal.TAKEN
    with pytest.raises(PortTakenError) as caught:
        check_port(taken, lambda: ())
    other = caught.value.numbers["free_port"]
    assert isinstance(other, int) and try_port(other) is None


def test_the_own_engine_is_no_orphan_and_a_dead_entry_is_forgotten(tmp_path: Path) -> None:
    with Recorder(tmp_path, fake_engine()) as engine:
        engine.wait_for("ready", 60)
        dead = RunEntry(run_id="dead", engine=ProcessIdentity(pid=999_999, create_time=1.0))
        engine.ledger.record(dead)
        scanner = Scanner(engine.ledger)
        table = scanner.table()
        assert not [orphan for orphan in classify(table).orphans if engine.child.identity.pid in orphan.pids]
        scanner.scan()
        assert [entry.run_id for entry in engine.ledger.read()] == [engine.child.run_id]


def test_missing_counters_are_unknown_and_not_zero() -> None:
    use = gpu_use_by_pid()
    rows = process_reader().read((), ()).processes
    for row in rows:
        if row.pid not in use:
            assert row.gpu_bytes is None and row.gpu_shared_bytes is None
    assert all(row.locked_bytes is None for row in rows), "Windows tells nobody what others keep locked"
    memory = live_memory()
    assert memory.read().ram_used
    memory.close()


def test_the_ledger_is_replaced_as_a_whole_while_another_launcher_reads_it(tmp_path: Path) -> None:
    runs = RunLedger(tmp_path)
    entry = RunEntry(run_id="a", engine=ProcessIdentity(pid=1, create_time=1.0))
    for number in range(50):
        runs.record(entry.model_copy(update={"port": number}))
        assert [read.port for read in runs.read()] == [number]
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
