"""The fake engine speaks as the real one does: the same argv, the same events, the same API."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.contract.events import Event, Failed, LayerSettled, Listening, Ready, RequestDone, Stop
from engine.contract.plan import Tier
from engine.contract.wire import check_hello, decode_event, encode
from tests.support.tiny_models import TinyModel, plan_for
from tests.support.tiny_plan import tiny_shape

PATIENCE_S = 20.0


class Fake:
    """A started fake engine."""

    def __init__(self, plan: Path, *options: str) -> None:
        words = [sys.executable, "-m", "tests.support.fake_engine", *options, "serve", str(plan), "--run-id", "r"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._killer = threading.Timer(PATIENCE_S, self.process.kill)
        self._killer.start()

    def events(self) -> Iterator[Event]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield decode_event(line)

    def until(self, kind: type[Event]) -> list[Event]:
        seen: list[Event] = []
        for event in self.events():
            seen.append(event)
            if isinstance(event, kind):
                return seen
        raise AssertionError(f"ended without {kind}: {seen}")

    def stop(self) -> list[str]:
        """Ask it to stop; the kinds of the events still to come."""
        assert self.process.stdin is not None
        self.process.stdin.write(encode(Stop()))
        self.process.stdin.flush()
        return [event.event for event in self.events()]

    def close(self) -> int:
        self._killer.cancel()
        self._killer.join()
        self.process.kill()
        code = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return code


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    made = plan_for(TinyModel(tmp_path, tiny_shape(4)), "vppl")
    file.write_text(made.model_dump_json(), "utf-8")
    return file


@pytest.fixture
def fake(plan: Path) -> Iterator[Any]:
    started: list[Fake] = []

    def start(*options: str) -> Fake:
        started.append(Fake(plan, *options))
        return started[-1]

    yield start
    for engine in started:
        engine.close()


def settled(events: list[Event]) -> list[Tier]:
    return [event.settled for event in events if isinstance(event, LayerSettled)]


def test_it_loads_what_the_plan_says_chats_and_stops(fake: Any) -> None:
    engine = fake("--reply", "two words")
    events = engine.until(Ready)
    check_hello(events[0])
    assert isinstance(events[1], Listening)
    assert settled(events) == [Tier.VRAM, Tier.PINNED, Tier.PINNED, Tier.LOCKED]
    url = f"http://127.0.0.1:{events[1].port}/v1/chat/completions"
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as response:
        data = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"].get("content", "") for line in data[:-1]]
    assert "".join(deltas) == "two words"
    assert engine.stop() == ["request_started", "prefill", "request_done", "stopped"]
    assert engine.process.wait(PATIENCE_S) == 0


def test_it_falls_short_as_told(fake: Any) -> None:
    events = fake("--fail-pins-from", "1").until(Ready)
    assert settled(events) == [Tier.VRAM, Tier.PINNED, Tier.LOCKED, Tier.LOCKED]
    (fallen,) = events[-1].residency.fallen
    assert fallen.cause


def test_it_crashes_and_fails_as_told(fake: Any) -> None:
    crashed = fake("--crash-at-layer", "2", "--crash-code", "9")
    assert [event.event for event in crashed.events()].count("layer_settled") == 2
    assert crashed.process.wait(PATIENCE_S) == 9
    failed = fake("--fail-at-layer", "1")
    assert failed.until(Failed)[-1].problem.kind == "ram"
    assert failed.process.wait(PATIENCE_S) == 2


def test_hanging_up_cancels_its_answer(fake: Any) -> None:
    engine = fake("--reply", "word " * 5000, "--token-delay-ms", "20")
    (listening,) = [event for event in engine.until(Ready) if isinstance(event, Listening)]
    url = f"http://127.0.0.1:{listening.port}/v1/chat/completions"
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as response:
        next(line for line in response.iter_lines() if '"word"' in line)
    done = engine.until(RequestDone)[-1]
    assert done.finish_reason == "cancelled"


def test_a_script_is_played_as_it_is(fake: Any, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    lines = [
        {"listen": True},
        {"delay_ms": 1},
        {"event": "layer_settled", "layer": 1, "asked": "pinned", "settled": "locked"},
    ]
    script.write_text("\n".join(json.dumps(line) for line in [*lines, {"exit": 5}]), "utf-8")
    engine = fake(str(script))
    assert [event.event for event in engine.events()] == ["hello", "listening", "layer_settled"]
    assert engine.process.wait(PATIENCE_S) == 5
