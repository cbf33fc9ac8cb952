"""A taken port is found before the start, and named with its owner and a free neighbour."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.supervision.engine_child import EngineChild
from app.supervision.ledger import RunLedger
from app.supervision.ports import PortTakenError, check_port, explain_taken_port
from engine.contract.errors import Problem, SplitpinError
from engine.contract.events import Event
from engine.contract.processes import ProcessIdentity, RunEntry
from engine.system.ports import PortRefusal, try_port
from tests.app.supervision.recorder import Recorder, fake_engine
from tests.support.tiny_plan import tiny_plan


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_t16_a_taken_port_starts_nothing_and_names_owner_and_a_free_one(tmp_path: Path, taken: int) -> None:
    said: list[Event | str | Problem | None] = []
    with pytest.raises(PortTakenError) as caught:
        EngineChild.start(
            tiny_plan(),
            run_ledger=RunLedger(tmp_path / "runs"),
            on_event=said.append,
            on_log=said.append,
            on_end=said.append,
            engine_argv=fake_engine(),
            port=taken,
        )
    problem = caught.value.problem
    assert problem.kind == "port"
    assert f"Port {taken}" in problem.sentence and f"PID {os.getpid()}" in problem.sentence
    assert problem.numbers["owner_pid"] == os.getpid()
    assert problem.numbers["owner_name"]
    assert said == []
    assert not (tmp_path / "runs").exists(), "no run is on record for what never started"
    [fix] = problem.fixes
    other = fix.numbers["port"]
    assert fix.change == "port" and isinstance(other, int) and other != taken
    assert try_port(other) is None
    assert str(other) in fix.sentence and str(other) in problem.fix


def test_t16_the_offered_port_is_the_one_the_engine_then_tells(tmp_path: Path, taken: int) -> None:
    with pytest.raises(PortTakenError) as caught:
        check_port(taken, lambda: ())
    other = caught.value.numbers["free_port"]
    assert isinstance(other, int)
    with Recorder(tmp_path, fake_engine(), port=other) as engine:
        engine.wait_for("ready")
        [listening] = [event for event in engine.events if event.event == "listening"]
        assert listening.port == other
        assert [entry.port for entry in engine.ledger.read()] == [other]


def test_t16_an_engine_of_ours_on_the_port_is_called_ours(taken: int) -> None:
    me = ProcessIdentity(pid=os.getpid(), create_time=1.0)
    with pytest.raises(PortTakenError) as caught:
        check_port(taken, lambda: [RunEntry(run_id="a", engine=me, port=taken)])
    assert "another engine of Splitpin" in caught.value.sentence


def test_t16_a_port_taken_after_the_check_is_explained_when_the_engine_reports_it(tmp_path: Path, taken: int) -> None:
    # the engine tries a port that was taken after the launcher had looked
    with Recorder(tmp_path, [*fake_engine(), "--port-instead", str(taken)]) as engine:
        problem = engine.ended()
    assert problem is not None and problem.kind == "port"
    assert problem.numbers["owner_pid"] == os.getpid()
    assert "ready" not in engine.names
    assert problem.fixes[0].change == "port"


def test_a_reserved_range_is_told_apart_from_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(server: socket.socket, address: object) -> None:
        raise PermissionError(errno.EACCES, "10013: forbidden by its access permissions")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert try_port(5000) is PortRefusal.RESERVED
    with pytest.raises(PortTakenError) as caught:
        check_port(5000, lambda: ())
    assert "the system keeps it for itself" in caught.value.sentence
    assert caught.value.problem.fixes[0].numbers == {"port": 0}


def test_port_0_needs_no_check_and_other_problems_stay_as_they_are() -> None:
    check_port(0, lambda: pytest.fail("nobody needs the runs"))
    other = SplitpinError("Something else.", "Nothing.").problem
    assert explain_taken_port(other, lambda: ()) is other


def test_a_port_that_is_free_again_is_had(taken: int) -> None:
    assert try_port(taken) is PortRefusal.TAKEN


@pytest.mark.skipif(sys.platform != "linux", reason="Windows has no ports for the administrator alone")
def test_a_closed_connection_does_not_keep_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = server.accept()
        served.close()  # closes first: the port waits
        client.close()
    assert try_port(port) is None
