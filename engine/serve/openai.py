"""The OpenAI shapes: what a chat request may hold, and the bodies and chunks that answer it. Pure; no torch, no HTTP.

Fields of the request that are not named here are ignored, tools among them; what would change the shape of the answer
is refused. `timings` beside `usage` is our own addition.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from engine.contract.errors import (
    ContextTooLongError,
    NotEnoughMemoryError,
    PlanMismatchError,
    Problem,
    SplitpinError,
)
from engine.contract.record import first_fault
from engine.generate.request import Outcome
from engine.serve.template_meter import TemplateLimitError
from engine.system.protocols import RefusedError

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": waiting\n\n"  # a comment: clients skip it, a broken connection shows
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024  # of one: each token is compared with all of it


class ApiError(Exception):
    """An answer that is not 200: HTTP status and the fields of OpenAI's error body.

    An error of ours adds `sentence`, `fix` and `numbers`, so that a client need not take the message apart.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        problem: Problem | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.problem = problem
        self.kind = kind or ("invalid_request_error" if status < 500 else "server_error")

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body."""
        ours = {} if self.problem is None else self.problem.model_dump(include={"sentence", "fix", "numbers"})
        return {"error": {"message": self.message, "type": self.kind, "code": self.code, "param": self.param, **ours}}


def api_error(error: SplitpinError) -> ApiError:
    """The same error for an HTTP client: what the client can change is 400, want of memory 507, the rest 500."""
    status = 500
    if isinstance(error, ContextTooLongError | PlanMismatchError | TemplateLimitError):
        status = 400  # a client that tries a 500 again would only hear the same
    elif isinstance(error, NotEnoughMemoryError | RefusedError):
        status = 507
    return ApiError(status, f"{error.sentence} {error.fix}".strip(), code=error.kind, problem=error.problem)


class _Ignoring(BaseModel):
    """Clients send more than we know; unknown fields are no error."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ContentPart(_Ignoring):
    """One part of a message. Only text can be read."""

    type: str
    text: str | None = None


class ChatMessage(_Ignoring):
    """One turn as the client sent it."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None

    def text(self, index: int) -> str:
        """The turn as one text; parts are joined as they are.

        Raises:
            ApiError: 400, a part is not text.
        """
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        for place, part in enumerate(self.content):
            if part.type != "text" or part.text is None:
                where = f"messages[{index}].content[{place}]"
                raise ApiError(400, f"{where} is of type {part.type!r:.60}; only text can be read.", param=where)
        return "".join(part.text or "" for part in self.content)


class StreamOptions(_Ignoring):
    """Only `include_usage` is known."""

    include_usage: bool = False


class ResponseFormat(_Ignoring):
    """Only text can be promised."""

    type: str = "text"


class ChatRequest(_Ignoring):
    """Body of POST /v1/chat/completions."""

    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | tuple[str, ...] | None = None
    n: int | None = None
    logprobs: bool | None = None
    response_format: ResponseFormat | None = None
    tool_choice: str | dict[str, Any] | None = None

    @field_validator("logprobs")
    @classmethod
    def _no_logprobs(cls, logprobs: bool | None) -> bool | None:
        if logprobs:
            raise ValueError("probabilities of tokens are not given out")
        return logprobs

    @field_validator("response_format")
    @classmethod
    def _only_text(cls, wished: ResponseFormat | None) -> ResponseFormat | None:
        if wished is not None and wished.type != "text":
            raise ValueError(f"an answer of type {wished.type!r:.60} cannot be promised; only 'text' can")
        return wished

    @field_validator("tool_choice")
    @classmethod
    def _no_forced_tool(cls, choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        if choice not in (None, "none", "auto"):
            raise ValueError("the model cannot be made to call a tool")
        return choice

    @field_validator("n")
    @classmethod
    def _one_answer(cls, n: int | None) -> int | None:
        if n not in (None, 1):
            raise ValueError(f"{n} answers asked for; one request gets one answer")
        return n

    @model_validator(mode="after")
    def _stop_strings(self) -> Self:
        if len(self.stop_strings) > MAX_STOP_STRINGS:
            raise ValueError(f"{len(self.stop_strings)} stop strings; at most {MAX_STOP_STRINGS} are possible")
        if (longest := max(map(len, self.stop_strings), default=0)) > MAX_STOP_CHARS:
            raise ValueError(f"a stop string of {longest:,} characters; at most {MAX_STOP_CHARS:,} are possible")
        if "" in self.stop_strings:
            raise ValueError("an empty stop string would end every answer at once")
        return self

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else self.stop

    @property
    def answer_limit(self) -> int | None:
        """The newer name wins over the older one; None: as long as the context allows."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def sampling_fields(self) -> dict[str, float | None]:
        """The sampling values of the request, None where it names none."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
        }


def read_chat_request(body: bytes) -> ChatRequest:
    """Read a request body.

    Raises:
        ApiError: 400 with the first field that does not fit.
    """
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as cause:
        fault = first_fault(cause)
        raise ApiError(400, fault.told, param=fault.field or None) from cause


def usage(outcome: Outcome) -> dict[str, Any]:
    """Token counts."""
    return {
        "prompt_tokens": outcome.prompt_tokens,
        "completion_tokens": outcome.answer_tokens,
        "total_tokens": outcome.prompt_tokens + outcome.answer_tokens,
        "prompt_tokens_details": {"cached_tokens": outcome.reused_tokens},
    }


def timings(outcome: Outcome) -> dict[str, float | None]:
    """Seconds and rates; see `Timings`."""
    return {
        "ttft_s": outcome.timings.ttft_s,
        "prefill_tok_s": outcome.timings.prefill_tok_s,
        "decode_tok_s": outcome.timings.decode_tok_s,
    }


class ChatAnswer:
    """The bodies of one answer; id, time and model name are the same in all of them."""

    def __init__(self, request_id: str, model: str) -> None:
        self.request_id = request_id
        self._model = model
        self._created = int(time.time())

    def whole(self, text: str, outcome: Outcome) -> dict[str, Any]:
        """The answer of a request without `stream`."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": outcome.finish_reason,
        }
        return self._body("chat.completion", [choice], usage=usage(outcome), timings=timings(outcome))

    def role_chunk(self) -> bytes:
        """First chunk of a stream."""
        return self._chunk({"role": "assistant", "content": ""})

    def text_chunk(self, text: str) -> bytes:
        """A piece of the answer."""
        return self._chunk({"content": text})

    def last_chunk(self, outcome: Outcome) -> bytes:
        """The only chunk with a finish reason."""
        return self._chunk({}, outcome.finish_reason, timings=timings(outcome))

    def usage_chunk(self, outcome: Outcome) -> bytes:
        """After the last chunk, without choices, if the request asked for it."""
        return sse(self._body("chat.completion.chunk", [], usage=usage(outcome), timings=timings(outcome)))

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return sse(self._body("chat.completion.chunk", [choice], **more))

    def _body(self, kind: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        head = {"id": self.request_id, "object": kind, "created": self._created, "model": self._model}
        return {**head, "choices": choices, **more}


def sse(body: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"
