"""Another split for the engine that runs, and the restart where it says no."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.core.session import ActiveRequest, EngineStage, SessionState
from app.link.engine_process import EngineProcess
from app.link.plan_apply import PlanApply
from app.link.store import SessionStore
from app.supervision.ledger import RunLedger
from engine.contract.errors import Problem
from engine.contract.events import RequestStarted
from engine.contract.plan import MemoryPlan
from engine.contract.plan_change import PlanWish, changed_plan
from tests.app.supervision.recorder import FAST, fake_engine
from tests.support.tiny_plan import tiny_plan

WAIT_MS = 30_000
OLD = tiny_plan(context_tokens=512)
NEW = changed_plan(OLD, PlanWish(context_tokens=1024))


class Link:
    """Store, engine and what is tested; the engine is ready."""

    def __init__(self, qtbot: QtBot, folder: Path, *options: str) -> None:
        self.store = SessionStore()
        self.engine = EngineProcess(
            self.store, RunLedger(folder / "runs"), engine_argv=fake_engine(*options), ladder=FAST
        )
        self.apply = PlanApply(self.store, self.engine)
        self.applied: list[MemoryPlan] = []
        self.refused: list[Problem] = []
        self.apply.applied.connect(self.applied.append)
        self.apply.refused.connect(self.refused.append)
        self.engine.start(OLD)
        qtbot.waitUntil(lambda: self.store.state.stage is EngineStage.READY, timeout=WAIT_MS)


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
    assert link.apply.can_apply(NEW)
    link.apply.apply(NEW)
    assert link.apply.busy and not link.apply.can_apply(NEW)
    qtbot.waitUntil(lambda: link.applied == [NEW] and link.store.state.plan == NEW, timeout=WAIT_MS)
    assert link.store.state.residency is not None
    assert link.store.state.residency.ledger_settled == NEW.ledger
    assert (link.store.state.pid, link.refused, link.apply.busy) == (pid, [], False)


def test_a_refusal_is_told_with_its_numbers_and_a_restart_is_what_is_left(
    qtbot: QtBot, tmp_path: Path, closing: list[Link]
) -> None:
    link = Link(qtbot, tmp_path, "--refuse-plan")
    closing.append(link)
    pid = link.store.state.pid
    link.apply.apply(NEW)
    qtbot.waitUntil(lambda: bool(link.refused), timeout=WAIT_MS)
    [problem] = link.refused
    assert problem.kind == "vram"
    assert problem.numbers == {"needed_bytes": 2 << 20, "available_bytes": 1 << 20}
    assert link.store.state.plan == OLD
    with qtbot.waitSignal(link.apply.restarting, timeout=WAIT_MS):
        link.apply.restart(NEW)
    assert link.apply.busy
    qtbot.waitUntil(
        lambda: link.store.state.stage is EngineStage.READY and link.store.state.plan == NEW, timeout=WAIT_MS
    )
    assert link.store.state.pid != pid
    assert not link.apply.busy


def test_an_engine_that_ends_takes_the_question_with_it(qtbot: QtBot, tmp_path: Path, closing: list[Link]) -> None:
    link = Link(qtbot, tmp_path)
    closing.append(link)
    with qtbot.waitSignal(link.engine.ended, timeout=WAIT_MS):
        link.apply.apply(NEW)
        link.engine.kill()
    assert not link.apply.busy


def test_what_a_running_engine_cannot_take_is_not_asked_for(qtbot: QtBot, tmp_path: Path) -> None:
    store = SessionStore()
    apply = PlanApply(store, EngineProcess(store, RunLedger(tmp_path / "runs")))
    assert not apply.can_apply(NEW), "nothing runs"
    store._state = SessionState(stage=EngineStage.READY, plan=OLD, host="127.0.0.1", port=1)
    assert apply.can_apply(NEW)
    assert not apply.can_apply(OLD), "it is the same"
    assert not apply.can_apply(NEW.model_copy(update={"model_dir": "/other"}))
    store.apply(RequestStarted(request_id="a", prompt_tokens=1))
    assert store.state.request == ActiveRequest("a", 1)
    assert not apply.can_apply(NEW), "it is answering"
