"""The engine's state, step by step."""

import pytest

from app.core.session import (
    ChangeGivenUp,
    ChangeRequested,
    EngineStage,
    Happening,
    ProcessEnded,
    SessionState,
    SplitChange,
    StartRequested,
    StopRequested,
    step,
)
from engine.contract.errors import EngineStoppedError
from engine.contract.events import (
    Event,
    Failed,
    Heartbeat,
    Hello,
    IntegrityBroken,
    LayerSettled,
    Listening,
    Loading,
    PlanChanged,
    PlanChanging,
    PrefillProgress,
    Ready,
    RequestDone,
    RequestStarted,
    StepStalled,
    Stopped,
)
from engine.contract.plan import Tier
from engine.contract.residency import LayerResidency, ResidencyReport
from tests.support.tiny_plan import tiny_plan

PLAN = tiny_plan()
HELLO = Hello(wire=1, engine_version="x", pid=77, run_id="r")
LISTENING = Listening(host="127.0.0.1", port=5001)
LAYER = LayerSettled(layer=1, asked=Tier.PINNED, settled=Tier.LOCKED, cause="refused")
READY = Ready(
    residency=ResidencyReport(
        device="CPU", simulated=False, layers=(), ledger_asked=(), ledger_settled=(), self_test="equal"
    )
)
CRASH = EngineStoppedError("The engine stopped.", "Start it again.").problem


def _loading(stage: str = "experts") -> Loading:
    return Loading.model_validate(
        {"stage": stage, "layers_done": 1, "layers_total": 3, "bytes_done": 5, "bytes_total": 9, "elapsed_s": 1}
    )


def _after(*happenings: Happening) -> SessionState:
    state = SessionState()
    for happening in happenings:
        state = step(state, happening)
    return state


def test_a_start_goes_through_loading_and_checking_to_ready() -> None:
    assert _after(StartRequested(PLAN)).stage is EngineStage.STARTING
    loading = _after(StartRequested(PLAN), HELLO, LISTENING, _loading(), LAYER)
    assert (loading.stage, loading.pid, loading.run_id) == (EngineStage.LOADING, 77, "r")
    assert loading.api_base == "http://127.0.0.1:5001/v1"
    assert loading.settled == {1: LAYER}
    assert step(loading, _loading("checking")).stage is EngineStage.CHECKING
    ready = step(loading, READY)
    assert ready.stage is EngineStage.READY
    assert ready.loading is None
    assert ready.residency == READY.residency


def test_a_load_that_reads_nothing_yet_is_still_starting() -> None:
    young = _after(StartRequested(PLAN), HELLO, LISTENING, _loading("starting"))
    assert young.stage is EngineStage.STARTING
    assert young.reading is None


def test_the_reading_is_timed_from_its_first_progress_to_its_last_byte() -> None:
    def at(stage: str, elapsed_s: float, done: int) -> Loading:
        return _loading(stage).model_copy(update={"elapsed_s": elapsed_s, "bytes_done": done})

    reading = _after(StartRequested(PLAN), at("starting", 2.0, 0), at("dense", 3.0, 0)).reading
    assert reading is not None and reading.bytes_per_s is None
    events = (at("starting", 2.0, 0), at("dense", 3.0, 0), at("experts", 5.0, 8), at("checking", 9.0, 8), READY)
    reading = _after(StartRequested(PLAN), *events).reading
    assert reading is not None
    assert (reading.took_s, reading.bytes_per_s) == (2.0, 4.0)


def test_a_second_start_does_nothing_while_an_engine_runs() -> None:
    running = _after(StartRequested(PLAN), HELLO)
    assert step(running, StartRequested(tiny_plan("/other"))) is running


def test_a_stop_that_was_asked_for_ends_clean_whatever_arrives_late() -> None:
    stopping = _after(StartRequested(PLAN), HELLO, READY, StopRequested())
    assert stopping.stage is EngineStage.STOPPING
    assert step(stopping, _loading()).stage is EngineStage.STOPPING
    assert step(step(stopping, Stopped()), ProcessEnded()) == SessionState()
    assert step(stopping, ProcessEnded(CRASH)) == SessionState()


def test_a_crash_keeps_plan_and_problem_and_allows_a_new_start() -> None:
    crashed = _after(StartRequested(PLAN), HELLO, LAYER, ProcessEnded(CRASH))
    assert (crashed.stage, crashed.plan, crashed.problem) == (EngineStage.FAILED, PLAN, CRASH)
    assert crashed.api_base is None
    assert not crashed.running
    assert step(crashed, StartRequested(PLAN)).problem is None


def test_what_the_engine_said_counts_more_than_its_exit_code() -> None:
    told = CRASH.model_copy(update={"kind": "ram"})
    failed = _after(StartRequested(PLAN), HELLO, Failed(problem=told), ProcessEnded(CRASH))
    assert failed.problem == told


def test_requests_are_followed_and_strangers_ignored() -> None:
    started = _after(StartRequested(PLAN), HELLO, READY, RequestStarted(request_id="a", prompt_tokens=10))
    half = step(started, PrefillProgress(request_id="a", done_tokens=5, total_tokens=10))
    assert half.request is not None and half.request.prefilled_tokens == 5
    assert step(half, PrefillProgress(request_id="b", done_tokens=9, total_tokens=10)) is half
    done = RequestDone(request_id="a", finish_reason="stop", prompt_tokens=10, answer_tokens=2)
    assert step(half, done).request is None
    assert step(half, done).last_done == done


def test_stopping_nothing_changes_nothing() -> None:
    assert _after(StopRequested()) == SessionState()


def _stalled(running_s: float = 130) -> StepStalled:
    return StepStalled(request_id="a", phase="decode", running_s=running_s, limit_s=120)


@pytest.mark.parametrize(
    "news",
    [
        Heartbeat(request_id="a", phase="decode", steps=2, step_s=130),
        RequestDone(request_id="a", finish_reason="stop", prompt_tokens=1, answer_tokens=1),
        RequestStarted(request_id="b", prompt_tokens=3),
    ],
    ids=lambda event: str(event.event),
)
def test_a_stalled_step_shows_until_there_is_news_of_it(news: Event) -> None:
    ready = SessionState(stage=EngineStage.READY)
    state = step(step(ready, RequestStarted(request_id="a", prompt_tokens=1)), _stalled())
    assert state.stalled == _stalled()
    assert step(state, _stalled(240)).stalled == _stalled(240)
    assert step(state, news).stalled is None
    assert step(state, ProcessEnded()).stalled is None


def test_a_changed_plan_is_the_plan_that_runs() -> None:
    old, new = tiny_plan(context_tokens=512), tiny_plan(context_tokens=1024)
    layers = (LayerResidency(layer=2, asked=Tier.PINNED, settled=Tier.LOCKED, bytes=1, cause="refused"),)
    residency = ResidencyReport(
        device="CPU", simulated=False, layers=layers, ledger_asked=(), ledger_settled=(), self_test="Same."
    )
    state = SessionState(stage=EngineStage.READY, plan=old)
    changed = step(state, PlanChanged(plan=new, residency=residency, took_s=1))
    assert (changed.plan, changed.residency, changed.stage) == (new, residency, EngineStage.READY)
    assert changed.settled == {2: LayerSettled(layer=2, asked=Tier.PINNED, settled=Tier.LOCKED, cause="refused")}


def test_findings_of_the_engine_about_itself_are_kept() -> None:
    state = step(SessionState(stage=EngineStage.READY), IntegrityBroken(findings=("1 B too much.",)))
    assert state.findings == ("1 B too much.",)
    assert step(state, ProcessEnded()).findings == ()


def test_a_change_that_is_asked_for_is_known_until_it_is_there_or_given_up() -> None:
    change = SplitChange(tiny_plan(context_tokens=1024))
    ready = SessionState(stage=EngineStage.READY, plan=PLAN)
    asked = step(ready, ChangeRequested(change))
    assert (asked.change, asked.plan) == (change, PLAN)
    half = PlanChanging(bytes_done=1, bytes_total=2)
    assert step(asked, half).change == SplitChange(change.plan, moving=half)
    assert step(ready, half) == ready, "somebody else has asked for it"
    there = PlanChanged(plan=change.plan, residency=READY.residency, took_s=1)
    for news in (there, ChangeGivenUp(), StopRequested(), ProcessEnded()):
        assert step(asked, news).change is None
    assert step(SessionState(stage=EngineStage.LOADING), ChangeRequested(change)).change is None, "nothing runs yet"


def test_a_change_that_waits_outlives_news_of_another_one() -> None:
    asked = step(SessionState(stage=EngineStage.READY, plan=PLAN), ChangeRequested(SplitChange(tiny_plan())))
    other = tiny_plan(context_tokens=1024)
    assert step(asked, PlanChanged(plan=other, residency=READY.residency, took_s=1)).change == asked.change


def test_a_restart_that_waits_outlives_a_change_that_somebody_else_has_made() -> None:
    restart = SplitChange(tiny_plan(context_tokens=1024), restart=True)
    asked = step(SessionState(stage=EngineStage.READY, plan=PLAN), ChangeRequested(restart))
    assert step(asked, PlanChanged(plan=PLAN, residency=READY.residency, took_s=1)).change == restart
