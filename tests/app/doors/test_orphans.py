"""`python -m app orphans`: on recorded tables, and on a real left-over process of this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.__main__ import main
from app.supervision.ledger import RunLedger
from engine.contract.processes import ProcessIdentity, RunEntry
from tests.support.processes import identity_of, lives, wait_until

TABLES = Path(__file__).parents[2] / "processes"

# A process that starts another one and ends, leaving it behind.
LEAVE_BEHIND = (
    "import os,subprocess,sys;"
    "child=subprocess.Popen([sys.executable,'-c','import time;time.sleep(600)'],start_new_session=True,"
    "stdin=subprocess.DEVNULL,stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL);"
    "print(child.pid,flush=True);os._exit(0)"
)


def _door(tmp_path: Path, *words: str) -> int:
    return main(["--profile-dir", str(tmp_path), "orphans", *words])


def test_a_recorded_table_gives_the_documented_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _door(tmp_path, "--processes", str(TABLES / "T13.json"), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (orphan,) = document["orphans"]
    assert {"pids", "reason", "confidence", "preselected", "rss_bytes", "gpu_bytes", "age_s"} <= set(orphan)
    assert orphan["pids"] == [4188]
    assert document["others"] == []


def test_a_recorded_table_reads_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _door(tmp_path, "--processes", str(TABLES / "T13.json")) == 0
    out = capsys.readouterr().out
    assert "PID 4188" in out and "14.3 GiB of VRAM" in out and "parent ended" in out
    assert _door(tmp_path, "--processes", str(TABLES / "T14.json")) == 0
    assert "No left-over processes." in capsys.readouterr().out


def test_processes_of_a_recorded_table_are_never_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _door(tmp_path, "--processes", str(TABLES / "T13.json"), "--end") == 2
    assert "cannot be ended" in capsys.readouterr().err


@pytest.fixture
def left_over() -> ProcessIdentity:
    """A real process whose parent is gone."""
    done = subprocess.run([sys.executable, "-c", LEAVE_BEHIND], capture_output=True, text=True, check=True, timeout=60)
    return identity_of(int(done.stdout))


def _record(tmp_path: Path, engine: ProcessIdentity, supervisor: ProcessIdentity) -> RunLedger:
    runs = RunLedger(tmp_path / "runs")
    runs.record(RunEntry(run_id="earlier", engine=engine, supervisor=supervisor))
    return runs


def test_a_planted_engine_of_an_earlier_run_is_found_ended_and_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left_over: ProcessIdentity
) -> None:
    gone = ProcessIdentity(pid=left_over.pid, create_time=left_over.create_time - 500)
    runs = _record(tmp_path, left_over, gone)
    assert _door(tmp_path, "--json") == 0
    (orphan,) = json.loads(capsys.readouterr().out)["orphans"]
    assert (orphan["pids"], orphan["confidence"]) == ([left_over.pid], "ours")
    assert lives(left_over), "looking ends nothing"
    assert _door(tmp_path, "--end", "--json") == 0
    (report,) = json.loads(capsys.readouterr().out)["ended"]
    assert report["ended"] == [left_over.pid]
    assert report["sentence"].startswith("Ended.")
    assert not lives(left_over)
    assert _door(tmp_path) == 0
    assert "No left-over processes." in capsys.readouterr().out
    assert runs.read() == ()


def test_the_same_process_with_a_living_launcher_is_not_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left_over: ProcessIdentity
) -> None:
    try:
        _record(tmp_path, left_over, identity_of(os.getpid()))
        assert _door(tmp_path, "--end", "--json") == 0
        document = json.loads(capsys.readouterr().out)
        assert document["orphans"] == [] and document["ended"] == []
        assert _door(tmp_path, "--end", str(left_over.pid)) == 2
        assert lives(left_over)
    finally:
        psutil.Process(left_over.pid).kill()
        assert wait_until(lambda: not lives(left_over))
