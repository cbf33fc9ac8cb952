"""The engine as the launcher sees it: one immutable state, one pure function that changes it."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from engine.contract.errors import Problem
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
from engine.contract.plan import MemoryPlan
from engine.contract.residency import ResidencyReport


class EngineStage(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    CHECKING = "checking"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ActiveRequest:
    """A request the engine is answering now."""

    request_id: str
    prompt_tokens: int
    prefilled_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SplitChange:
    """Another split for the engine that runs: asked for, and not there yet. No new question is asked meanwhile.

    `restart`: by ending the engine and starting it again, as soon as nobody is being answered. `moving` is how far the
    engine is, once its turn has come.
    """

    plan: MemoryPlan
    restart: bool = False
    moving: PlanChanging | None = None


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """The reading of the weights: times on the clock of the load, and the bytes that were done then."""

    from_s: float
    until_s: float
    from_bytes: int
    until_bytes: int

    @property
    def took_s(self) -> float:
        return self.until_s - self.from_s

    @property
    def bytes_per_s(self) -> float | None:
        """Mean rate; None while no time has passed."""
        return (self.until_bytes - self.from_bytes) / self.took_s if self.took_s > 0 else None


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything known of the engine. `plan` is the plan it runs, not the one on the slider.

    `stalled` is the step that runs for very long now; `findings` is where the engine's own books do not agree; `change`
    is the split that is to take the place of `plan`.
    """

    stage: EngineStage = EngineStage.STOPPED
    plan: MemoryPlan | None = None
    called: str = ""  # what the launcher calls the model; empty: by the name of its folder
    pid: int | None = None
    run_id: str | None = None
    host: str | None = None
    port: int | None = None
    loading: Loading | None = None
    reading: ReadSpan | None = None
    settled: dict[int, LayerSettled] = field(default_factory=dict)
    residency: ResidencyReport | None = None
    request: ActiveRequest | None = None
    last_done: RequestDone | None = None
    stalled: StepStalled | None = None
    findings: tuple[str, ...] = ()
    change: SplitChange | None = None
    problem: Problem | None = None

    @property
    def model_name(self) -> str | None:
        """Of the model that was sent, for people; clients of the API know it by the name of its folder."""
        return self.called or (None if self.plan is None else self.plan.model.name)

    @property
    def running(self) -> bool:
        """A process exists or is being started or stopped."""
        return self.stage not in (EngineStage.STOPPED, EngineStage.FAILED)

    @property
    def share_loaded(self) -> float:
        """Of all weights, 0..1."""
        loading = self.loading
        return 0.0 if loading is None or not loading.bytes_total else loading.bytes_done / loading.bytes_total

    @property
    def log_file(self) -> str | None:
        """The log of the engine that failed."""
        file = None if self.problem is None else self.problem.numbers.get("log_file")
        return file if isinstance(file, str) and file else None

    @property
    def api_base(self) -> str | None:
        """Address of the OpenAI-compatible API, without a trailing slash."""
        return None if self.port is None else f"http://{self.host}:{self.port}/v1"


@dataclass(frozen=True, slots=True)
class StartRequested:
    """The launcher starts an engine with this plan, for a model that it calls so."""

    plan: MemoryPlan
    called: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The launcher asks the engine to stop."""


@dataclass(frozen=True, slots=True)
class ChangeRequested:
    """The launcher wants another split for the engine that runs."""

    change: SplitChange


@dataclass(frozen=True, slots=True)
class ChangeGivenUp:
    """That change was refused, or called off: the engine runs on as it is."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The engine's whole process tree is gone. `problem` is None if the end was asked for."""

    problem: Problem | None = None


_STAGES = {"starting": EngineStage.STARTING, "checking": EngineStage.CHECKING}  # the others are loading

Happening = Event | StartRequested | StopRequested | ChangeRequested | ChangeGivenUp | ProcessEnded


def step(state: SessionState, happening: Happening) -> SessionState:
    """The next state. Never raises: an event that makes no sense in a state leaves it as it is."""
    match happening:
        case StartRequested(plan=plan, called=called):
            return state if state.running else SessionState(stage=EngineStage.STARTING, plan=plan, called=called)
        case StopRequested():
            return replace(state, stage=EngineStage.STOPPING, change=None) if state.running else state
        case ChangeRequested(change=change):
            return replace(state, change=change) if state.stage is EngineStage.READY else state
        case ChangeGivenUp():
            return replace(state, change=None)
        case ProcessEnded(problem=problem):
            return _ended(state, problem)
        case Failed(problem=problem):
            return replace(state, problem=problem)
        case Hello(pid=pid, run_id=run_id):
            return replace(state, pid=pid, run_id=run_id)
        case Listening(host=host, port=port):
            return replace(state, host=host, port=port)
        case Loading():
            stage = _STAGES.get(happening.stage, EngineStage.LOADING)
            reading = _read(state.reading, happening)
            return replace(state, stage=_unless_stopping(state, stage), loading=happening, reading=reading)
        case LayerSettled(layer=layer):
            return replace(state, settled={**state.settled, layer: happening})
        case Ready(residency=residency):
            return replace(state, stage=_unless_stopping(state, EngineStage.READY), residency=residency, loading=None)
        case RequestStarted(request_id=request_id, prompt_tokens=prompt, reused_tokens=reused):
            return replace(state, request=ActiveRequest(request_id, prompt, reused), stalled=None)
        case PrefillProgress(request_id=request_id, done_tokens=done):
            if state.request is None or state.request.request_id != request_id:
                return state
            return replace(state, request=replace(state.request, prefilled_tokens=done), stalled=None)
        case RequestDone():
            return replace(state, request=None, last_done=happening, stalled=None)
        case Heartbeat():
            return replace(state, stalled=None)
        case StepStalled():
            return replace(state, stalled=happening)
        case PlanChanging():
            asked = state.change
            return state if asked is None else replace(state, change=replace(asked, moving=happening))
        case PlanChanged(plan=plan, residency=residency):
            kept = state.change  # what was asked for meanwhile, or is not this
            if kept is not None and not kept.restart and kept.plan == plan:
                kept = None
            return replace(state, plan=plan, residency=residency, settled=_as_settled(residency), change=kept)
        case IntegrityBroken(findings=findings):
            return replace(state, findings=findings)
        case Stopped():
            return replace(state, stage=EngineStage.STOPPING)


def _as_settled(residency: ResidencyReport) -> dict[int, LayerSettled]:
    """What the layers would have told one by one."""
    return {
        one.layer: LayerSettled(layer=one.layer, asked=one.asked, settled=one.settled, cause=one.cause)
        for one in residency.layers
    }


def _unless_stopping(state: SessionState, stage: EngineStage) -> EngineStage:
    return state.stage if state.stage is EngineStage.STOPPING else stage


def _read(span: ReadSpan | None, loading: Loading) -> ReadSpan | None:
    """The span with one more progress: it begins with the first weights and grows only as bytes do."""
    at_s, done = loading.elapsed_s, loading.bytes_done
    if span is None:
        return None if loading.stage == "starting" else ReadSpan(at_s, at_s, done, done)
    return span if done <= span.until_bytes else replace(span, until_s=at_s, until_bytes=done)


def _ended(state: SessionState, problem: Problem | None) -> SessionState:
    reported = state.problem or problem
    if state.stage is EngineStage.STOPPING or reported is None:
        return SessionState()
    return SessionState(
        stage=EngineStage.FAILED, plan=state.plan, called=state.called, settled=state.settled, problem=reported
    )
