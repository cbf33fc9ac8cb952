"""A left-over process as users meet it: the worker of an engine whose launcher was killed, and one that only looks so.

    python -m tests.support.planted launcher RUNS_DIR MIB    starts an engine with a worker, and waits to be killed
    python -m tests.support.planted engine MIB ...           that engine
    python -m tests.support.planted stranger MIB             another program with such a worker, alive and well

The worker is a child of `multiprocessing` started by spawn: its command line names nothing. It holds MIB of RAM.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from engine.contract.events import WIRE_VERSION, Hello
from engine.contract.processes import ProcessIdentity
from engine.contract.units import MIB
from engine.contract.wire import encode
from tests.support.processes import identity_of, wait_until
from tests.support.tiny_plan import tiny_plan


def plant(runs: Path, mib: int) -> ProcessIdentity:
    """Leave a worker over, on record in the ledger of `runs`. Windows would not let it: there the job ends it."""
    command = [sys.executable, "-m", "tests.support.planted", "launcher", str(runs), str(mib)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        worker = identity_of(int(launcher.stdout.readline()))
        launcher.kill()
        launcher.wait()
    [entry] = RunLedger(runs).read()
    assert wait_until(lambda: not psutil.pid_exists(entry.engine.pid) or _is_zombie(entry.engine.pid))
    return worker


def stranger(mib: int) -> tuple[subprocess.Popen[bytes], ProcessIdentity]:
    """A program with a worker of the same command line, and that worker. Kill the program's stdin to end both."""
    command = [sys.executable, "-m", "tests.support.planted", "stranger", str(mib)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout is not None
    return program, identity_of(int(program.stdout.readline()))


def end_with_children(identity: ProcessIdentity) -> None:
    """Whatever a test left of it."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(identity.pid)
        if abs(process.create_time() - identity.create_time) <= 1.0:
            process.kill()


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _hold(mib: int, ready: str) -> None:
    held = bytearray(mib * MIB)
    held[::4096] = b"x" * len(range(0, len(held), 4096))  # every page is really there
    Path(ready).write_text(str(os.getpid()), "utf-8")
    time.sleep(600)


def _start_worker(mib: int) -> int:
    ready = Path(f"/tmp/splitpin-planted-{os.getpid()}")
    worker = multiprocessing.get_context("spawn").Process(target=_hold, args=(mib, str(ready)))
    worker.start()
    assert wait_until(lambda: ready.exists() and ready.read_text("utf-8") != "", 60)
    ready.unlink()
    assert worker.pid is not None
    return worker.pid


def _launcher(runs: Path, mib: int) -> None:
    ledger = RunLedger(runs)
    workers: list[int] = []
    child = EngineChild.start(
        tiny_plan(),
        run_ledger=ledger,
        on_event=lambda event: None,
        on_log=lambda line: workers.append(json.loads(line)["worker"]) if "worker" in line else None,
        on_end=lambda problem: print(problem, file=sys.stderr),
        engine_argv=[sys.executable, "-m", "tests.support.planted", "engine", str(mib)],
    )
    assert wait_until(lambda: bool(workers), 60)
    on_record = wait_until(lambda: any(each.pid == workers[0] for run in ledger.read() for each in run.children), 60)
    assert on_record
    print(workers[0], flush=True)
    child.wait()


def _engine(mib: int, run_id: str) -> None:
    worker = _start_worker(mib)
    sys.stdout.buffer.write(encode(Hello(wire=WIRE_VERSION, engine_version="x", pid=os.getpid(), run_id=run_id)))
    sys.stdout.flush()
    print(json.dumps({"worker": worker}), file=sys.stderr, flush=True)
    sys.stdin.read()


def main() -> None:
    match sys.argv[1:]:
        case ["launcher", runs, mib]:
            _launcher(Path(runs), int(mib))
        case ["engine", mib, *words]:
            _engine(int(mib), words[words.index("--run-id") + 1])
        case ["stranger", mib]:
            print(_start_worker(int(mib)), flush=True)
            sys.stdin.read()
            for child in multiprocessing.active_children():
                child.kill()


if __name__ == "__main__":
    main()
