"""Another split for the engine that runs, over HTTP."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot
from typing_extensions import override

from app.core.session import EngineStage, SessionState
from app.link.engine_process import EngineProcess
from app.link.plan_apply import PlanApply
from app.link.store import SessionStore
from app.link.stream import ChatStream
from app.supervision.ledger import RunLedger
from engine.contract.errors import Problem
from engine.contract.events import PlanChanged
from engine.contract.plan_change import PlanWish, changed_plan
from tests.app.supervision.recorder import FAST, fake_engine
from tests.support.tiny_plan import tiny_plan

WAIT_MS = 30_000
OLD = tiny_plan(context_tokens=512)
NEW = changed_plan(OLD, PlanWish(context_tokens=1024))


class Link:
    """Store, engine and what is tested; the engine is ready."""

    def __init__(self, qtbot: QtBot, folder: Path, *options: str) -> None:
        self.qtbot = qtbot
        self.store = SessionStore()
        self.engine = EngineProcess(
            self.store, RunLedger(folder / "runs"), engine_argv=fake_engine(*options), ladder=FAST
        )
        self.apply = PlanApply(self.store)
        self.applied: list[PlanChanged] = []
        self.refused: list[Problem] = []
        self.apply.applied.connect(self.applied.append)
        self.apply.refused.connect(self.refused.append)
        self.engine.start(OLD)
        self.wait(lambda: self.store.state.stage is EngineStage.READY)

    def wait(self, until: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(until, timeout=WAIT_MS)


@pytest.fixture
def closing() -> Iterator[list[Link]]:
    """Engines that are ended after the test."""
    links: list[Link] = []
    yield links
    for link in links:
        assert link.engine.close()


def test_a_ready_engine_takes_the_split_and_the_state_shows_it(
    qtbot: QtBot, tmp_path: Path, closing: list[Link]
) -> None:
    link = Link(qtbot, tmp_path)
    closing.append(link)
    pid = link.store.state.pid
    link.apply.apply(NEW)
    assert link.apply.busy
    assert link.store.state.change is not None and link.store.state.change.plan == NEW
    assert link.store.state.plan == OLD, "until it is there"
    link.wait(lambda: bool(link.applied))
    state = link.store.state
    assert link.applied[0].plan == NEW == state.plan
    assert state.residency is not None and state.residency.ledger_settled == NEW.ledger
    assert (state.pid, state.change, link.refused, link.apply.busy) == (pid, None, [], False)


def test_a_refusal_is_told_with_its_numbers_and_the_old_split_runs_on(
    qtbot: QtBot, tmp_path: Path, closing: list[Link]
) -> None:
    link = Link(qtbot, tmp_path, "--refuse-plan")
    closing.append(link)
    link.apply.apply(NEW)
    link.wait(lambda: bool(link.refused))
    [problem] = link.refused
    assert (problem.kind, problem.numbers) == ("vram", {"needed_bytes": 2 << 20, "available_bytes": 1 << 20})
    state = link.store.state
    assert (state.plan, state.change, state.stage) == (OLD, None, EngineStage.READY)


def test_an_answer_in_progress_is_finished_first(qtbot: QtBot, tmp_path: Path, closing: list[Link]) -> None:
    link = Link(qtbot, tmp_path, "--token-delay-ms", "20", "--reply", " ".join(["word"] * 20))
    closing.append(link)
    stream, pieces = ChatStream(), list[str]()
    stream.delta.connect(pieces.append)
    assert link.store.state.api_base is not None
    stream.send(link.store.state.api_base, [{"role": "user", "content": "Go on."}])
    link.wait(lambda: link.store.state.request is not None)
    link.apply.apply(NEW)
    link.wait(lambda: bool(link.applied))
    link.wait(lambda: not stream.busy)
    assert len(pieces) == 20, "every word of it arrived"


def test_an_engine_that_ends_takes_the_question_with_it(qtbot: QtBot, tmp_path: Path, closing: list[Link]) -> None:
    link = Link(qtbot, tmp_path, "--plan-delay-ms", "60000")
    closing.append(link)
    with qtbot.waitSignal(link.engine.ended, timeout=WAIT_MS):
        link.apply.apply(NEW)
        link.engine.kill()
    assert not link.apply.busy
    assert link.store.state.change is None
    assert link.refused == []


def test_a_change_that_waits_can_be_called_off(qtbot: QtBot, tmp_path: Path, closing: list[Link]) -> None:
    link = Link(qtbot, tmp_path, "--plan-delay-ms", "60000")
    closing.append(link)
    link.apply.apply(NEW)
    link.apply.call_off()
    assert (link.apply.busy, link.store.state.change, link.store.state.plan) == (False, None, OLD)
    assert link.refused == [], "the user knows"


def test_without_a_ready_engine_nothing_is_asked(qtbot: QtBot) -> None:
    store = SessionStore()
    apply = PlanApply(store)
    apply.apply(NEW)
    assert not apply.busy
    store._state = SessionState(stage=EngineStage.LOADING, plan=OLD, host="127.0.0.1", port=1)
    apply.apply(NEW)
    assert not apply.busy


class Babbling(BaseHTTPRequestHandler):
    """Answers with something else."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_answer_that_is_none_is_a_refusal_in_words(qtbot: QtBot) -> None:
    server = HTTPServer(("127.0.0.1", 0), Babbling)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    store = SessionStore()
    store._state = SessionState(stage=EngineStage.READY, plan=OLD, host="127.0.0.1", port=server.server_port)
    apply = PlanApply(store)
    with qtbot.waitSignal(apply.refused, timeout=WAIT_MS) as refused:
        apply.apply(NEW)
    thread.join(WAIT_MS / 1000)
    server.server_close()
    assert refused.args is not None and refused.args[0].kind == "connection"
    assert "cannot be understood" in refused.args[0].sentence
