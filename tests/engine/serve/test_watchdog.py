"""Heartbeats after steps, and a watchdog that tells of a step that does not end; the clock is the test's."""

import threading

import pytest

from engine.contract.events import Event, Heartbeat, StepStalled
from engine.serve.watchdog import LEAST_S, MANY, MANY_LOADS, POLL_S, Limits, Watchdog
from tests.engine.serve.conftest import PATIENCE_S, Serve


class Watch:
    """A watchdog with a clock that is moved by hand; it looks once a second, as it does for real."""

    def __init__(self, load_s: float = 0.0) -> None:
        self.now = 1000.0
        self.events: list[Event] = []
        self.watchdog = Watchdog(self.events.append, load_s=load_s, clock=lambda: self.now)
        self.watchdog.request("r")

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / POLL_S)):
            self.now += POLL_S
            self.watchdog.look()

    def step(self, phase: str, tokens: int, took_s: float) -> None:
        self.watchdog.begin(phase, tokens)  # type: ignore[arg-type]
        self.run(took_s)
        self.watchdog.end()

    @property
    def stalled(self) -> list[StepStalled]:
        return [event for event in self.events if isinstance(event, StepStalled)]


def test_a_heartbeat_comes_at_most_once_a_second() -> None:
    watch = Watch()
    for _ in range(40):
        watch.watchdog.begin("decode", 1)
        watch.now += 0.1
        watch.watchdog.end()
    beats = [event for event in watch.events if isinstance(event, Heartbeat)]
    assert [beat.steps for beat in beats] == [1, 11, 21, 31]
    assert all(beat.request_id == "r" and beat.step_s == pytest.approx(0.1) for beat in beats)


def test_a_step_that_does_not_end_is_told_at_the_limit_and_again_when_the_time_has_doubled() -> None:
    watch = Watch()
    watch.watchdog.begin("prefill", 512)
    watch.run(LEAST_S - 2)
    assert watch.stalled == []
    watch.run(4 * LEAST_S)
    told = [event.running_s for event in watch.stalled]
    assert told == pytest.approx([LEAST_S, 2 * LEAST_S, 4 * LEAST_S], abs=POLL_S)
    assert {event.limit_s for event in watch.stalled} == {LEAST_S}


def test_a_stalled_step_that_ends_after_all_is_taken_back_by_a_heartbeat() -> None:
    watch = Watch()
    watch.step("decode", 1, 0)
    watch.watchdog.begin("decode", 1)
    watch.run(LEAST_S + 5)
    watch.watchdog.end()
    assert [event.event for event in watch.events[-2:]] == ["step_stalled", "heartbeat"]


def test_a_slow_machine_is_given_as_much_time_as_it_has_shown_to_need() -> None:
    watch = Watch()
    watch.step("prefill", 100, 50)
    watch.step("decode", 1, 30)
    watch.watchdog.begin("decode", 1)
    watch.run(MANY * 30 - 2)
    assert watch.stalled == []
    watch.run(4)
    assert [event.limit_s for event in watch.stalled] == [MANY * 30]


def test_limits_follow_from_what_was_measured() -> None:
    limits = Limits(load_s=100)
    assert limits.limit_s("prefill", 10) == MANY_LOADS * 100
    limits.measured("prefill", 100, 20)
    assert limits.limit_s("prefill", 500) == MANY * 100
    assert limits.limit_s("prefill", 10) == MANY * 20, "a short chunk may have to read all weights too"
    assert limits.limit_s("decode", 1) == MANY * 20, "a token computes less than a chunk"
    limits.measured("decode", 1, 1)
    assert limits.limit_s("decode", 1) == LEAST_S
    limits.measured("decode", 1, 9)
    limits.measured("decode", 1, 1)
    assert limits.limit_s("decode", 1) == MANY * 9


def test_time_in_which_the_computer_slept_is_not_counted() -> None:
    watch = Watch()
    watch.watchdog.begin("decode", 1)
    watch.run(10)
    watch.now += 8 * 3600
    watch.run(LEAST_S - 20)
    assert watch.stalled == []
    watch.run(20)
    assert len(watch.stalled) == 1
    assert watch.stalled[0].running_s < LEAST_S + 5


def test_an_idle_engine_is_never_stalled() -> None:
    watch = Watch()
    watch.step("decode", 1, 2)
    watch.run(10 * LEAST_S)
    watch.watchdog.begin("decode", 1)
    watch.watchdog.abandon()
    watch.run(10 * LEAST_S)
    assert watch.stalled == []


def test_every_request_beats(serve: Serve) -> None:
    served = serve()
    assert served.chat().status_code == 200
    beat = served.wait_for("heartbeat")
    assert isinstance(beat, Heartbeat) and beat.phase == "prefill" and beat.steps == 1


def test_the_watchdog_sees_the_step_the_engine_is_in_and_ends_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serve.watchdog.LEAST_S", 0.0)
    monkeypatch.setattr("engine.serve.watchdog.MANY", 0.0)
    monkeypatch.setattr("engine.serve.watchdog.MANY_LOADS", 0.0)
    monkeypatch.setattr("engine.serve.watchdog.POLL_S", 0.01)
    served = serve()
    served.model.prefill_gate.close()
    statuses: list[int] = []
    chat = threading.Thread(target=lambda: statuses.append(served.chat().status_code))
    chat.start()
    stalled = served.wait_for("step_stalled")
    assert isinstance(stalled, StepStalled) and stalled.phase == "prefill"
    served.model.prefill_gate.open()
    chat.join(PATIENCE_S)
    assert statuses == [200]
    served.wait_for("heartbeat")
