"""Lives of an engine for stress runs: start, load, answer, and one of many ends; then a look for what was left over."""

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from app.orphans.classify import classify
from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from app.supervision.ports import PortTakenError
from app.supervision.run_folder import RunFolderError
from app.supervision.scan import Scanner
from app.supervision.stop_ladder import StopLadder
from engine.contract.errors import Problem
from engine.contract.events import Event
from engine.contract.plan import MemoryPlan
from engine.system.ports import free_port, try_port
from tests.support.full_disk import SmallDisk
from tests.support.processes import wait_until

READY_S = 90.0  # a loaded computer starts slowly; only the ends are measured
GONE_S = 15.0
LADDER = StopLadder(command_s=10, close_s=2, terminate_s=2, gone_s=10)
LONG_ANSWER = " ".join(["word"] * 300)


class LeftOverError(AssertionError):
    """A cycle left something behind, or did not end as it should."""


@dataclass
class Bench:
    """Where the cycles run. `folder` is unlike any other, so that a command line that names it is ours.

    `disk` holds the ledger's folder.
    """

    folder: Path
    disk: SmallDisk
    plan: MemoryPlan
    argv: Sequence[str] | None  # None: the real engine
    chance: random.Random
    ports: list[int] = field(default_factory=list)
    gone_s: float = 0.0  # of the last cycle: from the end until nothing was left

    @property
    def ledger(self) -> RunLedger:
        return RunLedger(self.disk.folder)

    def start(self, *more: str, port: int = 0) -> "Life":
        argv = None if self.argv is None else [*self.argv, *more]
        return Life(self, argv, port)


class Life:
    """One engine of this process, and what it told."""

    def __init__(self, bench: Bench, argv: Sequence[str] | None, port: int) -> None:
        self.bench = bench
        self.events: list[Event] = []
        self.ends: list[Problem | None] = []
        self._news = threading.Condition()
        self.child = EngineChild.start(
            bench.plan,
            run_ledger=bench.ledger,
            on_event=self._event,
            on_log=lambda line: None,
            on_end=self._end,
            engine_argv=argv,
            ladder=LADDER,
            port=port,
        )

    def wait_for(self, name: str) -> None:
        with self._news:
            self._news.wait_for(lambda: self._has(name) or bool(self.ends), READY_S)
        if not self._has(name):
            raise LeftOverError(f"no {name}: {[event.event for event in self.events]}, {self.ends}")

    def answer(self) -> Iterator[bytes]:
        """Ask, and give the pieces of the answer as they come."""
        self.wait_for("ready")
        [port] = [event.port for event in self.events if event.event == "listening"]
        return ask(port)

    def ended(self) -> Problem | None:
        if not self.child.wait(READY_S):
            raise LeftOverError("the end was not told")
        return self.ends[0]

    def _has(self, name: str) -> bool:
        return any(event.event == name for event in self.events)

    def _event(self, event: Event) -> None:
        if event.event == "listening":
            self.bench.ports.append(event.port)
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def _end(self, problem: Problem | None) -> None:
        with self._news:
            self.ends.append(problem)
            self._news.notify_all()


def ask(port: int) -> Iterator[bytes]:
    """Stream one answer; a connection that breaks ends it."""
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 200})
    with (
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=READY_S)) as connection,
        suppress(OSError, http.client.HTTPException),
    ):
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        while line := response.readline():
            if line.strip():
                yield line


def _some_of(pieces: Iterator[bytes], chance: random.Random) -> None:
    for _ in range(chance.randint(2, 12)):
        next(pieces, b"")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise LeftOverError(what)


# -- the ends ---------------------------------------------------------------------------------------------------------


def kill_launcher(bench: Bench) -> float:
    plan_file = bench.folder / "plan.json"
    plan_file.write_text(bench.plan.model_dump_json(), "utf-8")
    command = [sys.executable, "-m", "tests.support.bare_launcher", str(bench.ledger.folder), str(plan_file)]
    with subprocess.Popen([*command, *(bench.argv or ())], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as other:
        assert other.stdout is not None
        line = other.stdout.readline()
        if not line:
            raise LeftOverError("the launcher ended before its engine was ready")
        port = int(json.loads(line)["api_base"].rsplit(":", 1)[1].split("/")[0])
        bench.ports.append(port)
        pieces = ask(port)
        _some_of(pieces, bench.chance)
        at = time.monotonic()
        other.kill()
        other.wait()
        list(pieces)
    return at


def kill_engine(bench: Bench) -> float:
    life = bench.start()
    if bench.chance.random() < 0.7:
        _some_of(life.answer(), bench.chance)
    else:
        life.wait_for("hello")
    at = time.monotonic()
    with suppress(psutil.NoSuchProcess):
        psutil.Process(life.child.identity.pid).kill()
    problem = life.ended()
    _expect(problem is not None and problem.kind == "engine_stopped", f"a killed engine was told as {problem}")
    return at


def terminate_engine(bench: Bench) -> float:
    life = bench.start()
    _some_of(life.answer(), bench.chance)
    at = time.monotonic()
    psutil.Process(life.child.identity.pid).terminate()
    life.ended()
    return at


def close_window(bench: Bench) -> float:
    life = bench.start()
    _some_of(life.answer(), bench.chance)
    at = time.monotonic()
    life.child.stop(wait_for_memory=False)
    _expect(life.ended() is None, "a stop that was asked for was told as a problem")
    return at


def stop_engine(bench: Bench) -> float:
    life = bench.start()
    life.wait_for("ready")
    at = time.monotonic()
    life.child.stop()
    _expect(life.ended() is None, "a stop that was asked for was told as a problem")
    _expect(life.child.memory_return is not None, "nobody looked whether the memory came back")
    return at


def cancel_load(bench: Bench) -> float:
    life = bench.start(*(("--layer-delay-ms", "400") if bench.argv is not None else ()))
    life.wait_for(bench.chance.choice(("hello", "loading", "layer_settled")))
    at = time.monotonic()
    life.child.stop(wait_for_memory=False)
    _expect(life.ended() is None, "a cancelled load was told as a problem")
    return at


def disk_full(bench: Bench) -> float:
    if bench.chance.random() < 0.5:
        at = time.monotonic()
        bench.ledger.forget_old_folders()  # a start does that first, and would find room
        with bench.disk.full():
            try:
                life = bench.start()
            except RunFolderError:
                return at
            life.child.kill()
            life.ended()
        raise LeftOverError("a plan was written to a full disk")
    life = bench.start()
    with bench.disk.full():
        _some_of(life.answer(), bench.chance)
        at = time.monotonic()
        life.child.stop(wait_for_memory=False)
        _expect(life.ended() is None, "a full disk kept an engine from being stopped")
    return at


def steal_port(bench: Bench) -> float:
    at = time.monotonic()
    wished = free_port(bench.chance.randint(20_000, 60_000))
    if wished is None:
        return at
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", wished))
        thief.listen()
        if bench.argv is not None and bench.chance.random() < 0.5:
            problem = bench.start("--port-instead", str(wished)).ended()
            _expect(problem is not None and problem.kind == "port", f"a stolen port was told as {problem}")
            return at
        try:
            life = bench.start(port=wished)
        except PortTakenError as taken:
            _expect(taken.numbers["owner_pid"] in (os.getpid(), None), f"the port was called that of {taken.numbers}")
            return at
        life.child.kill()
        life.ended()
    raise LeftOverError("an engine was started on a stolen port")


End = Callable[[Bench], float]
ENDS: dict[str, End] = {
    "kill launcher": kill_launcher,
    "kill engine": kill_engine,
    "terminate engine": terminate_engine,
    "close window": close_window,
    "stop and wait for memory": stop_engine,
    "cancel load": cancel_load,
    "disk full": disk_full,
    "port stolen": steal_port,
}


# -- what is left -----------------------------------------------------------------------------------------------------


def ours(folder: Path) -> list[int]:
    """Living processes, other than this one, whose command line names the folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            named = any(folder.name in word for word in process.cmdline())
            if named and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def run_cycle(bench: Bench, end: End) -> None:
    """One life and its end.

    Raises:
        LeftOverError: something is left, or it did not end as it should.
    """
    bench.ports.clear()
    at = end(bench)
    gone = wait_until(lambda: not ours(bench.folder), GONE_S)
    bench.gone_s = time.monotonic() - at
    _expect(gone, f"processes {ours(bench.folder)} are left")
    for port in bench.ports:
        _expect(wait_until(lambda port=port: try_port(port) is None, 5), f"port {port} is still taken")  # type: ignore[misc]
    scanner = Scanner(bench.ledger)
    mine = {entry.engine.pid for entry in bench.ledger.read()}
    offered = [orphan for orphan in classify(scanner.table()).orphans if mine & set(orphan.pids)]
    _expect(not offered, f"orphans {offered}")
    scanner.scan()
    _expect(bench.ledger.read() == (), f"on record: {bench.ledger.read()}")
    files = [file.name for file in bench.ledger.folder.glob("*") if file.is_file()]
    _expect(not files, f"files {files} are left")
