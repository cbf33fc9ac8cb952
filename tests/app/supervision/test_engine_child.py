"""An engine from its start to the moment nothing of it is left."""

import os
import sys
import threading
from pathlib import Path

import pytest

from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from app.supervision.run_folder import RunFolderError
from engine.contract.plan import MemoryPlan
from engine.contract.processes import ProcessIdentity
from engine.system.protocols import ChildProcess, LaunchRefusedError
from tests.app.supervision.recorder import IMPATIENT, Recorder, fake_engine
from tests.support.processes import identity_of, lives, wait_until
from tests.support.tiny_plan import tiny_plan

# Greets as an engine does, starts a child of its own, prints that child's pid, and waits.
HELLO = (
    "import json,os,subprocess,sys,time;"
    "run=sys.argv[sys.argv.index('--run-id')+1];"
    "print(json.dumps(dict(event='hello',wire=1,engine_version='x',pid=os.getpid(),run_id=run)),flush=True);"
)
WITH_CHILD = HELLO + (
    "child=subprocess.Popen([sys.executable,'-c','import time;time.sleep(600)']);"
    "print('child',child.pid,file=sys.stderr,flush=True);"
)


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def _grandchild(recorder: Recorder) -> ProcessIdentity:
    assert wait_until(lambda: any(line.startswith("child ") for line in recorder.lines))
    return identity_of(int(next(line for line in recorder.lines if line.startswith("child ")).split()[1]))


def test_an_engine_loads_answers_for_its_run_and_stops_when_asked(tmp_path: Path) -> None:
    with Recorder(tmp_path, fake_engine()) as engine:
        engine.wait_for("ready")
        plan_file = engine.ledger.run_dir(engine.child.run_id) / "plan.json"
        assert MemoryPlan.model_validate_json(plan_file.read_bytes()) == tiny_plan()
        engine.child.stop()
        engine.child.stop()
        assert engine.ended() is None
    assert engine.names[0] == "hello"
    assert engine.names[-1] == "stopped"
    assert not lives(engine.child.identity)


def test_the_ledger_knows_the_run_while_it_lives_and_forgets_it_afterwards(tmp_path: Path) -> None:
    with Recorder(tmp_path, fake_engine()) as engine:
        engine.wait_for("ready")
        (entry,) = engine.ledger.read()
        assert entry.run_id == engine.child.run_id
        assert entry.engine == engine.child.identity
        assert entry.supervisor is not None and entry.supervisor.pid == os.getpid()
        assert entry.port is not None and entry.port > 0
        assert entry.model == "/models/tiny"
        engine.child.stop()
        assert engine.ended() is None
        assert engine.ledger.read() == ()


def test_an_engine_that_ends_on_its_own_is_explained_with_code_and_log(tmp_path: Path) -> None:
    with Recorder(tmp_path, fake_engine("--crash-at-layer", "1", "--crash-code", "3")) as engine:
        problem = engine.ended()
    assert problem is not None and problem.kind == "engine_stopped"
    assert problem.numbers["exit_code"] == 3
    assert "scripted crash" in str(problem.numbers["log_tail"])
    assert "scripted crash" in engine.child.log_file.read_text("utf-8")
    assert engine.ledger.read() == ()


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
def test_an_engine_ended_from_outside_is_told_by_its_signal(tmp_path: Path) -> None:
    code = HELLO + "import os,signal;os.kill(os.getpid(),signal.SIGKILL)"
    with Recorder(tmp_path, _python(code)) as engine:
        problem = engine.ended()
    assert problem is not None and problem.numbers["code"] == "SIGKILL"


def test_a_failure_the_engine_reports_keeps_its_kind_and_gets_the_log(tmp_path: Path) -> None:
    with Recorder(tmp_path, fake_engine("--fail-at-layer", "1")) as engine:
        problem = engine.ended()
    assert problem is not None and problem.kind == "ram"
    assert problem.short_bytes is not None and problem.short_bytes > 0
    assert "log_file" in problem.numbers


def test_an_engine_that_ignores_every_request_is_ended(tmp_path: Path) -> None:
    with Recorder(tmp_path, fake_engine("--ignore-stop"), IMPATIENT) as engine:
        engine.wait_for("ready")
        engine.child.stop()
        assert engine.ended() is None
    assert not lives(engine.child.identity)


def test_stopped_is_said_only_when_the_whole_tree_is_gone(tmp_path: Path) -> None:
    with Recorder(tmp_path, _python(WITH_CHILD + "time.sleep(600)"), IMPATIENT) as engine:
        grandchild = _grandchild(engine)
        engine.child.stop()
        assert engine.ended() is None
        assert not lives(grandchild)


def test_a_child_that_outlives_a_crashed_engine_is_ended_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.supervision.engine_child.REFRESH_S", 0.05)
    with Recorder(tmp_path, _python(WITH_CHILD + "time.sleep(0.2);os._exit(7)")) as engine:
        grandchild = _grandchild(engine)
        problem = engine.ended()
        assert not lives(grandchild)
    assert problem is not None and problem.numbers["exit_code"] == 7


def test_children_of_the_engine_reach_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.supervision.engine_child.REFRESH_S", 0.05)
    with Recorder(tmp_path, _python(WITH_CHILD + "sys.stdin.read()")) as engine:
        grandchild = _grandchild(engine)

        def recorded() -> bool:
            return any(child.pid == grandchild.pid for entry in engine.ledger.read() for child in entry.children)

        assert wait_until(recorded)


def test_an_entry_the_disk_refused_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.supervision.engine_child.REFRESH_S", 0.05)
    record = RunLedger.record
    with monkeypatch.context() as full_disk:
        full_disk.setattr(RunLedger, "record", lambda ledger, entry: False)
        engine = Recorder(tmp_path, fake_engine())
        with engine:
            engine.wait_for("ready")
            assert engine.ledger.read() == ()
            full_disk.setattr(RunLedger, "record", record)
            assert wait_until(lambda: len(engine.ledger.read()) == 1)


@pytest.mark.parametrize(
    "code",
    [
        "import time;print('no event at all',flush=True);time.sleep(600)",
        HELLO.replace("wire=1", "wire=99") + "time.sleep(600)",
        HELLO.replace("run_id=run", "run_id='another'") + "time.sleep(600)",
        HELLO + "print('{}',flush=True);time.sleep(600)",
        'import time;print(\'{"event":"stopped"}\',flush=True);time.sleep(600)',
    ],
    ids=["no JSON", "another version", "another run", "junk after the greeting", "no greeting"],
)
def test_a_program_that_does_not_speak_the_protocol_is_ended_and_named(tmp_path: Path, code: str) -> None:
    with Recorder(tmp_path, _python(code)) as engine:
        problem = engine.ended()
    assert problem is not None and problem.kind == "wire"
    assert not lives(engine.child.identity)


def test_output_is_drained_however_much_there_is(tmp_path: Path) -> None:
    noise = "sys.stderr.write(('x'*999+'\\n')*3000);sys.stderr.write('é\\n');sys.stderr.flush();os._exit(5)"
    with Recorder(tmp_path, _python(HELLO + noise)) as engine:
        problem = engine.ended()
    assert problem is not None and problem.numbers["exit_code"] == 5
    assert len(engine.lines) == 3001
    assert len(engine.child.log_lines) == 200
    assert engine.child.log_lines[-1] == "é"


def test_the_engine_sees_the_cleaned_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    code = HELLO + (
        "print(os.environ.get('PYTHONHASHSEED'),os.environ['SPLITPIN_RUN_ID']==run,file=sys.stderr,flush=True)"
    )
    with Recorder(tmp_path, _python(code)) as engine:
        engine.ended()
    assert engine.lines == ["None True"]


def test_a_missing_engine_is_a_typed_refusal_and_leaves_no_run_on_record(tmp_path: Path) -> None:
    with pytest.raises(LaunchRefusedError):
        Recorder(tmp_path, [str(tmp_path / "no-such-engine")])
    assert RunLedger(tmp_path / "runs").read() == ()


def test_a_run_folder_that_cannot_be_written_is_a_typed_refusal(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder should be", "utf-8")
    with pytest.raises(RunFolderError) as caught:
        EngineChild.start(
            tiny_plan(),
            run_ledger=RunLedger(tmp_path / "runs"),
            on_event=lambda event: None,
            on_log=lambda line: None,
            on_end=lambda problem: None,
        )
    assert "could not be written" in caught.value.sentence


def test_an_engine_that_can_no_longer_be_watched_is_ended_and_told_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = threading.Event()

    def workers(_: ChildProcess) -> tuple[ProcessIdentity, ...]:
        if broken.is_set():
            raise ModuleNotFoundError("No module named 'gone'")
        return ()

    monkeypatch.setattr("app.supervision.engine_child.REFRESH_S", 0.05)
    monkeypatch.setattr("app.supervision.engine_child._workers", workers)
    with Recorder(tmp_path, fake_engine()) as engine:
        engine.wait_for("ready")
        broken.set()
        problem = engine.ended()
        assert engine.ledger.read() == ()
    assert not lives(engine.child.identity)
    assert problem is not None and "No module named 'gone'" in problem.sentence
