"""What engine and launcher say to each other: events on stdout, commands on stdin, one JSON object a line."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from engine.contract.errors import Problem
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.record import Record
from engine.contract.residency import ResidencyReport, SlotUse

WIRE_VERSION = 1

Stage = Literal["starting", "dense", "experts", "cache", "checking"]
Phase = Literal["prefill", "decode"]


class Hello(Record):
    """First line of every engine. A launcher that does not know `wire` stops the engine and says so."""

    event: Literal["hello"] = "hello"
    wire: int
    engine_version: str
    pid: int
    run_id: str


class Listening(Record):
    """The HTTP port is open; `/health` answers from now on, `/v1` answers 503 until ready."""

    event: Literal["listening"] = "listening"
    host: str
    port: int


class Loading(Record):
    """Progress of the load; totals count the bytes of all weights, dense and experts."""

    event: Literal["loading"] = "loading"
    stage: Stage
    layers_done: int = Field(ge=0)
    layers_total: int = Field(ge=0)
    bytes_done: int = Field(ge=0)
    bytes_total: int = Field(ge=0)
    elapsed_s: float = Field(ge=0)


class LayerSettled(Record):
    """One MoE layer is filled and has found its tier."""

    event: Literal["layer_settled"] = "layer_settled"
    layer: int
    asked: Tier
    settled: Tier
    cause: str | None = None


class Ready(Record):
    """The model is loaded and compared; requests are answered from now on."""

    event: Literal["ready"] = "ready"
    residency: ResidencyReport


class RequestStarted(Record):
    """`reused_tokens` of the prompt are in the KV cache already; only the others are computed."""

    event: Literal["request_started"] = "request_started"
    request_id: str
    prompt_tokens: int
    reused_tokens: int = 0


class PrefillProgress(Record):
    """Of the whole prompt; `done_tokens` counts the reused ones too."""

    event: Literal["prefill"] = "prefill"
    request_id: str
    done_tokens: int
    total_tokens: int
    reused_tokens: int = 0


class RequestDone(Record):
    """Rates are None where too few tokens were computed to tell."""

    event: Literal["request_done"] = "request_done"
    request_id: str
    finish_reason: Literal["stop", "length", "cancelled", "error"]
    prompt_tokens: int
    reused_tokens: int = 0
    answer_tokens: int
    ttft_s: float | None = None
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None
    slots: tuple[SlotUse, ...] = Field(default=(), description="use of the expert slots, by pinned layer")


class Heartbeat(Record):
    """A step has ended: a chunk of a prompt, or one token. At most one a second, and one after each stalled step."""

    event: Literal["heartbeat"] = "heartbeat"
    request_id: str
    phase: Phase
    steps: int = Field(ge=0, description="of this request so far")
    step_s: float = Field(ge=0, description="what the last one took")


class StepStalled(Record):
    """A step runs much longer than such steps did before; told again when the time has doubled. Nothing is ended."""

    event: Literal["step_stalled"] = "step_stalled"
    request_id: str
    phase: Phase
    running_s: float = Field(ge=0)
    limit_s: float = Field(ge=0)


class PlanChanging(Record):
    """The turn of another split has come; bytes count every block that is made, held in another way or copied."""

    event: Literal["plan_changing"] = "plan_changing"
    bytes_done: int = Field(ge=0)
    bytes_total: int = Field(ge=0, description="0: no layer moves")


class PlanChanged(Record):
    """The running engine has taken another split."""

    event: Literal["plan_changed"] = "plan_changed"
    plan: MemoryPlan
    residency: ResidencyReport
    took_s: float = Field(ge=0)


class IntegrityBroken(Record):
    """The engine's books do not agree with each other: a fault of Splitpin. `findings` are sentences with numbers."""

    event: Literal["integrity_broken"] = "integrity_broken"
    findings: tuple[str, ...]


class Failed(Record):
    """The engine cannot go on and ends."""

    event: Literal["failed"] = "failed"
    problem: Problem


class Stopped(Record):
    """Last line of an engine that ends as it was asked to."""

    event: Literal["stopped"] = "stopped"


Event = Annotated[
    Hello
    | Listening
    | Loading
    | LayerSettled
    | Ready
    | RequestStarted
    | PrefillProgress
    | RequestDone
    | Heartbeat
    | StepStalled
    | PlanChanging
    | PlanChanged
    | IntegrityBroken
    | Failed
    | Stopped,
    Field(discriminator="event"),
]

EVENTS: TypeAdapter[Event] = TypeAdapter(Event)


class Stop(Record):
    """Stop loading or serving, free everything, end."""

    command: Literal["stop"] = "stop"


Command = Stop
