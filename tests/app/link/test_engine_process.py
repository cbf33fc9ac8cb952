"""The engine's process in Qt's world."""

import sys
import threading
from pathlib import Path

from pytestqt.qtbot import QtBot

from app.core.session import EngineStage, SessionState
from app.link.engine_process import EngineProcess
from app.link.store import SessionStore
from app.supervision.ledger import RunLedger
from tests.app.supervision.recorder import FAST, IMPATIENT, fake_engine
from tests.support.processes import lives
from tests.support.tiny_plan import tiny_plan

WAIT_MS = 30_000


def _engine(folder: Path, *options: str, argv: list[str] | None = None) -> tuple[SessionStore, EngineProcess]:
    store = SessionStore()
    ladder = IMPATIENT if "--ignore-stop" in options else FAST
    argv = argv or fake_engine(*options)
    return store, EngineProcess(store, RunLedger(folder / "runs"), engine_argv=argv, ladder=ladder)


def test_start_to_ready_to_stop_is_told_on_the_ui_thread(qtbot: QtBot, tmp_path: Path) -> None:
    store, engine = _engine(tmp_path)
    stages: list[EngineStage] = []
    threads: set[int] = set()

    def follow(state: SessionState) -> None:
        threads.add(threading.get_ident())
        if not stages or stages[-1] is not state.stage:
            stages.append(state.stage)

    store.changed.connect(follow)
    engine.start(tiny_plan())
    qtbot.waitUntil(lambda: store.state.stage is EngineStage.READY, timeout=WAIT_MS)
    assert store.state.residency is not None
    assert store.state.api_base is not None
    with qtbot.waitSignal(engine.ended, timeout=WAIT_MS) as ended:
        engine.stop()
    assert ended.args == [None]
    assert stages[0] is EngineStage.STARTING
    assert stages[-3:] == [EngineStage.READY, EngineStage.STOPPING, EngineStage.STOPPED]
    assert threads == {threading.get_ident()}
    assert engine.close()


def test_a_crash_while_loading_reaches_the_state_with_its_log(qtbot: QtBot, tmp_path: Path) -> None:
    store, engine = _engine(tmp_path, "--crash-at-layer", "1", "--crash-code", "3")
    lines: list[str] = []
    engine.logged.connect(lines.append)
    with qtbot.waitSignal(engine.ended, timeout=WAIT_MS):
        engine.start(tiny_plan())
    assert store.state.stage is EngineStage.FAILED
    assert store.state.problem is not None and store.state.problem.numbers["exit_code"] == 3
    assert len(store.state.settled) == 1
    assert any("scripted crash" in line for line in lines)
    assert engine.close()


def test_what_the_engine_says_of_its_own_end_comes_with_its_log(qtbot: QtBot, tmp_path: Path) -> None:
    store, engine = _engine(tmp_path, "--fail-at-layer", "1")
    with qtbot.waitSignal(engine.ended, timeout=WAIT_MS):
        engine.start(tiny_plan())
    assert engine.child is not None
    assert store.state.problem is not None
    assert store.state.problem.kind == "ram"
    assert store.state.problem.numbers["log_file"] == str(engine.child.log_file)
    assert engine.close()


def test_a_program_that_cannot_be_started_is_a_problem_and_not_an_exception(qtbot: QtBot, tmp_path: Path) -> None:
    store, engine = _engine(tmp_path, argv=[str(tmp_path / "absent")])
    with qtbot.waitSignal(engine.ended, timeout=WAIT_MS):
        engine.start(tiny_plan())
    assert store.state.problem is not None and store.state.problem.kind == "launch_refused"


def test_an_engine_can_be_started_again_after_its_end(qtbot: QtBot, tmp_path: Path) -> None:
    store, engine = _engine(tmp_path)
    runs = set()
    for _ in range(2):
        engine.start(tiny_plan())
        engine.start(tiny_plan())  # does nothing: one engine at a time
        qtbot.waitUntil(lambda: store.state.stage is EngineStage.READY, timeout=WAIT_MS)
        runs.add(store.state.run_id)
        with qtbot.waitSignal(engine.ended, timeout=WAIT_MS):
            engine.stop()
    assert len(runs) == 2
    assert engine.close()


def test_the_end_of_the_program_ends_an_engine_that_ignores_it(qtbot: QtBot, tmp_path: Path) -> None:
    store, engine = _engine(tmp_path, "--ignore-stop")
    engine.start(tiny_plan())
    qtbot.waitUntil(lambda: store.state.stage is EngineStage.READY, timeout=WAIT_MS)
    assert engine.child is not None
    assert engine.close(timeout_s=10)
    assert not lives(engine.child.identity)


def test_an_engine_that_does_not_respond_is_ended_at_once(qtbot: QtBot, tmp_path: Path) -> None:
    code = "import time;time.sleep(600)"
    store, engine = _engine(tmp_path, argv=[sys.executable, "-c", code])
    engine.start(tiny_plan())
    with qtbot.waitSignal(engine.ended, timeout=WAIT_MS):
        engine.kill()
    assert store.state == SessionState()
    assert engine.close()
