"""The stream client against the engine's own HTTP shapes, served by the fake engine in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.core.session import SessionState, StartRequested, step
from app.link.stream import STOPPED, ChatStream
from engine.contract.errors import Problem
from engine.contract.events import Ready, RequestDone
from engine.contract.plan import MemoryPlan
from engine.contract.wire import decode_event
from tests.support.tiny_plan import tiny_plan


class RunningEngine:
    """The fake engine and what it said so far."""

    def __init__(self, folder: Path, plan: MemoryPlan, *options: str) -> None:
        file = folder / "plan.json"
        file.write_text(plan.model_dump_json(), "utf-8")
        command = [sys.executable, "-m", "tests.support.fake_engine", *options, "serve", str(file)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.state = step(SessionState(), StartRequested(plan))
        self.read_until(Ready)

    def read_until(self, kind: type[Ready] | type[RequestDone]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = decode_event(line)
            self.state = step(self.state, event)
            if isinstance(event, kind):
                return
        raise AssertionError(f"the engine ended before {kind.__name__}")

    @property
    def api_base(self) -> str:
        assert self.state.api_base is not None
        return self.state.api_base

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=10)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RunningEngine]:
    running = RunningEngine(tmp_path, tiny_plan(context_tokens=64), "--layer-delay-ms", "1", "--token-delay-ms", "5")
    yield running
    running.close()


@pytest.fixture
def stream(qtbot: QtBot) -> Iterator[ChatStream]:
    made = ChatStream()
    yield made
    made.stop()
    made.deleteLater()


def test_an_answer_has_the_engines_own_numbers(qtbot: QtBot, stream: ChatStream, engine: RunningEngine) -> None:
    pieces: list[str] = []
    stream.delta.connect(pieces.append)
    with qtbot.waitSignal(stream.finished, timeout=10_000) as ended:
        stream.send(engine.api_base, [{"role": "user", "content": "one two three"}])
    assert ended.args is not None
    result = ended.args[0]
    assert "".join(pieces) == "You said: one two three"
    assert result.finish_reason == "stop"
    assert result.stats is not None
    assert (result.stats.prompt_tokens, result.stats.answer_tokens) == (3, 5)
    assert result.stats.ttft_s is not None


def test_hanging_up_is_a_cancelled_request_for_the_engine(
    qtbot: QtBot, stream: ChatStream, engine: RunningEngine
) -> None:
    with qtbot.waitSignal(stream.delta, timeout=10_000):
        stream.send(engine.api_base, [{"role": "user", "content": "word " * 40}])
    with qtbot.waitSignal(stream.finished) as ended:
        stream.stop()
    assert ended.args is not None
    assert ended.args[0].finish_reason == STOPPED
    engine.read_until(RequestDone)
    assert engine.state.last_done is not None
    assert engine.state.last_done.finish_reason == "cancelled"


def test_a_prompt_that_is_too_long_is_named_with_its_numbers(
    qtbot: QtBot, stream: ChatStream, engine: RunningEngine
) -> None:
    with qtbot.waitSignal(stream.failed, timeout=10_000) as ended:
        stream.send(engine.api_base, [{"role": "user", "content": "word " * 100}])
    assert ended.args is not None
    problem = ended.args[0]
    assert isinstance(problem, Problem)
    assert problem.kind == "context_length_exceeded"
    assert "100" in problem.sentence
    assert "64" in problem.sentence
