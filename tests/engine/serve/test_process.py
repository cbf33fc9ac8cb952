"""`python -m engine serve` as a process: its events, its commands, its exit codes."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from engine.contract.events import Event, Failed, Hello, LayerSettled, Listening, Loading, Ready, Stop
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.wire import check_hello, decode_event, encode
from engine.serve.server import bind
from tests.support.processes import wait_until
from tests.support.tiny_models import mixtral, plan_for
from tests.support.tiny_plan import tiny_plan

PATIENCE_S = 60.0
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}"


class Engine:
    """A started engine whose events are read as they come."""

    def __init__(self, *words: str) -> None:
        self.events: list[Event] = []
        self._arrived: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.log = b""
        self._readers = [threading.Thread(target=self._read_events), threading.Thread(target=self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._arrived.put(decode_event(line))
        self._arrived.put(None)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log = self.process.stderr.read()

    def wait_for(self, kind: str) -> Event:
        """The next event of a kind; everything before it is kept in `events`."""
        while (event := self._arrived.get(timeout=PATIENCE_S)) is not None:
            self.events.append(event)
            if event.event == kind:
                return event
        raise AssertionError(f"the engine ended without {kind!r}: {self.events} {self.log.decode()}")

    @property
    def url(self) -> str:
        (listening,) = [event for event in self.events if isinstance(event, Listening)]
        return f"http://{listening.host}:{listening.port}"

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> int:
        """Wait for its own end; all events are in `events`, the whole log in `log`."""
        code = self.process.wait(PATIENCE_S)
        while (event := self._arrived.get(timeout=PATIENCE_S)) is not None:
            self.events.append(event)
        self._close()
        return code

    def _close(self) -> None:
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        self._close()


@pytest.fixture
def start() -> Iterator[type[Engine]]:
    started: list[Engine] = []

    class Remembered(Engine):
        def __init__(self, *words: str) -> None:
            super().__init__(*words)
            started.append(self)

    yield Remembered
    for engine in started:
        engine.kill()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> MemoryPlan:
    """A tiny real checkpoint with layers in all tiers of a simulated GPU."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny = mixtral(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    return plan_for(tiny, "vpll")


@pytest.fixture(scope="module")
def plan_file(plan: MemoryPlan, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    file.write_text(plan.model_dump_json(), "utf-8")
    return str(file)


def myself() -> tuple[str, ...]:
    parent = psutil.Process()
    return ("--parent-pid", str(parent.pid), "--parent-create-time", repr(parent.create_time()))


def test_an_engine_says_hello_loads_answers_and_stops_on_command(
    start: type[Engine], plan: MemoryPlan, plan_file: str
) -> None:
    engine = start("serve", plan_file, "--run-id", "run-7", "--json", *myself())
    ready = engine.wait_for("ready")
    assert isinstance(ready, Ready)
    assert [layer.settled for layer in ready.residency.layers] == [Tier.VRAM, Tier.PINNED, Tier.LOCKED, Tier.LOCKED]
    hello = check_hello(engine.events[0])
    assert (hello.run_id, hello.pid) == ("run-7", engine.process.pid)
    assert isinstance(engine.events[1], Listening)
    between = engine.events[2:-1]
    assert {type(event) for event in between} == {Loading, LayerSettled}
    loading = [event for event in between if isinstance(event, Loading)]
    assert [event.bytes_done for event in loading] == sorted(event.bytes_done for event in loading)
    assert {event.bytes_total for event in loading} == {loading[-1].bytes_done}
    assert {event.layer for event in between if isinstance(event, LayerSettled)} == set(plan.model.moe_layers)

    with httpx.Client(base_url=engine.url, timeout=PATIENCE_S) as client:
        question = {"messages": [{"role": "user", "content": "hello world"}], "temperature": 0, "max_tokens": 5}
        first, second = (client.post("/v1/chat/completions", json=question) for _ in range(2))
        assert first.status_code == 200
        assert first.json()["usage"]["prompt_tokens"] == 2
        assert 0 < first.json()["usage"]["completion_tokens"] <= 5
        assert first.json()["choices"] == second.json()["choices"]
        assert client.get("/residency").json() == ready.residency.model_dump(mode="json")
        assert client.get("/health").json()["status"] == "ready"

    engine.send(b'{"command":"dance"}\n')  # unknown: noted in the log, nothing else
    engine.send(encode(Stop()))
    assert engine.end() == 0
    later = engine.events[engine.events.index(ready) + 1 :]
    kinds = [event.event for event in later if event.event != "heartbeat"]
    assert kinds == ["request_started", "prefill", "request_done"] * 2 + ["stopped"]
    assert b"unknown command" in engine.log
    assert b"Traceback" not in engine.log


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM; Stop and the end of the pipe are tested")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_loading_engine_cleanly(start: type[Engine], plan_file: str, number: signal.Signals) -> None:
    engine = start("serve", plan_file)
    engine.wait_for("listening")
    engine.process.send_signal(number)
    assert engine.end() == 0
    assert engine.events[-1].event == "stopped"
    assert not [event for event in engine.events if isinstance(event, Failed)]
    assert b"Traceback" not in engine.log


def test_a_launched_engine_stops_when_its_pipe_ends(start: type[Engine], plan_file: str) -> None:
    engine = start("serve", plan_file, *myself())
    engine.wait_for("listening")
    engine.close_stdin()
    assert engine.end() == 0
    assert engine.events[-1].event == "stopped"


def test_an_engine_without_a_launcher_does_not_need_its_pipe(start: type[Engine], plan_file: str) -> None:
    engine = start("serve", plan_file)
    engine.close_stdin()
    engine.wait_for("ready")
    assert httpx.get(engine.url + "/health", timeout=PATIENCE_S).json()["status"] == "ready"


def test_an_engine_whose_events_nobody_reads_stops(plan_file: str) -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", "serve", plan_file],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    assert os.read(reading, 8)
    os.close(reading)
    assert process.wait(PATIENCE_S) == 0


def refusal(engine: Engine) -> Failed:
    """The failure an engine ended with; every failure comes after hello and with exit code 2."""
    assert engine.end() == 2
    assert isinstance(engine.events[0], Hello)
    assert isinstance(engine.events[-1], Failed)
    return engine.events[-1]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "serve"),
        (("serve",), "plan"),
        (("serve", "no-such-plan.json"), "no-such-plan.json"),
        (("serve", "plan.json", "--port", "70000"), "70000"),
        (("serve", "plan.json", "--parent-pid", "1"), "--parent-create-time"),
        (("serve", "plan.json", "--parent-pid", "9" * 20, "--parent-create-time", "1"), "9" * 20),
        (("serve", "plan.json", "--parent-pid", "-1", "--parent-create-time", "1"), "-1"),
        (("dance",), "dance"),
    ],
)
def test_a_command_that_makes_no_sense_is_a_failed_event(
    start: type[Engine], words: tuple[str, ...], named: str
) -> None:
    problem = refusal(start(*words)).problem
    assert problem.kind == "usage"
    assert named in problem.sentence


@pytest.mark.parametrize("text", ["", "{}", '{"version": 1', "[]"])
def test_a_file_that_is_no_plan_is_a_failed_event(start: type[Engine], tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text, "utf-8")
    problem = refusal(start("serve", str(file))).problem
    assert problem.kind == "usage"
    assert str(file) in problem.sentence


def test_a_port_that_is_taken_is_a_failed_event_with_its_number(start: type[Engine], plan_file: str) -> None:
    with bind(0) as taken:
        port = taken.getsockname()[1]
        problem = refusal(start("serve", plan_file, "--port", str(port))).problem
    assert (problem.kind, problem.numbers) == ("port", {"port": port})


def test_a_model_folder_that_is_missing_is_a_failed_event(start: type[Engine], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(tiny_plan(str(tmp_path / "nowhere")).model_dump_json(), "utf-8")
    engine = start("serve", str(file))
    assert refusal(engine).problem.kind == "model_folder"


def test_whatever_prints_to_standard_output_lands_in_the_log() -> None:
    code = (
        "import os, subprocess, sys\n"
        "from engine.__main__ import _set_stdout_aside\n"
        "events = _set_stdout_aside()\n"
        "print('python noise', flush=True)\n"
        "os.write(1, b'library noise')\n"
        "subprocess.run([sys.executable, '-c', 'print(3)'])\n"
        "os.write(events, b'event')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == b"event"
    assert b"python noise" in done.stderr
    assert b"library noise" in done.stderr


def test_hello_needs_neither_torch_nor_the_http_server() -> None:
    code = "import sys, engine.serve.process; print([n for n in ('torch', 'fastapi', 'uvicorn') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.strip() == b"[]"


def test_the_http_side_needs_no_torch() -> None:
    code = "import sys, engine.serve.http, engine.serve.server; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.strip() == b"False"


def test_nothing_lingers_after_an_engine_has_stopped(start: type[Engine], plan_file: str) -> None:
    engine = start("serve", plan_file, *myself())
    engine.wait_for("ready")
    pid = engine.process.pid
    children = psutil.Process(pid).children(recursive=True)
    assert children == []
    engine.send(encode(Stop()))
    engine.wait_for("stopped")
    assert engine.end() == 0
    assert wait_until(lambda: not psutil.pid_exists(pid))
