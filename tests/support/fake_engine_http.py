"""The HTTP API of the fake engine: what clients see of `python -m engine serve`."""

import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from engine.contract.errors import ContextTooLongError, SplitpinError
from engine.contract.events import PrefillProgress, RequestDone, RequestStarted
from engine.generate.request import FinishReason, Outcome, Timings
from engine.serve.openai import DONE, KEEP_ALIVE, ApiError, ChatAnswer, ChatRequest, api_error, read_chat_request
from engine.serve.plan_jobs import read_wish

if TYPE_CHECKING:
    from tests.support.fake_engine import FakeEngine


class FakeServer(ThreadingHTTPServer):
    """Listens on a port of its own."""

    allow_reuse_address = os.name != "nt"  # on Windows that would share the port with whoever has it


def handler_of(engine: "FakeEngine") -> type[BaseHTTPRequestHandler]:
    """Answers requests for one engine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        @override
        def log_message(self, format: str, *args: object) -> None:
            print(format % args, file=sys.stderr)

        def do_GET(self) -> None:
            match self.path:
                case "/health":
                    self._json(200, engine.health())
                case "/residency" if engine.residency is not None:
                    self._json(200, engine.residency.model_dump(mode="json"))
                case "/v1/plan" if engine.residency is not None:
                    residency = engine.residency.model_dump(mode="json")
                    self._json(200, {"plan": engine.plan.model_dump(mode="json"), "residency": residency})
                case "/v1/models" if engine.residency is not None:
                    model = {"id": engine.plan.model.name, "object": "model", "created": 0, "owned_by": "splitpin"}
                    self._json(200, {"object": "list", "data": [model]})
                case "/residency" | "/v1/models" | "/v1/plan":
                    self._error(_still_loading())
                case _:
                    self._error(ApiError(404, f"There is nothing at {self.path}.", code="not_found"))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0]
            if path not in ("/v1/chat/completions", "/v1/plan"):
                self._error(ApiError(404, f"There is nothing at {self.path}.", code="not_found"))
                return
            try:
                if engine.residency is None:
                    raise _still_loading()
                if path == "/v1/plan":
                    changed = engine.change_plan(read_wish(body))
                    self._json(200, changed.model_dump(mode="json", exclude={"event"}))
                else:
                    self._chat(read_chat_request(body))
            except ApiError as error:
                self._error(error)
            except SplitpinError as error:
                self._error(api_error(error))

        def _chat(self, request: ChatRequest) -> None:
            words = [message.text(index) for index, message in enumerate(request.messages)]
            prompt_tokens = sum(len(text.split()) for text in words)
            room = engine.plan.context_tokens - prompt_tokens
            if room < 1:
                raise ContextTooLongError(prompt_tokens=prompt_tokens, context_tokens=engine.plan.context_tokens)
            limit = min(room, request.answer_limit or room)
            with engine.generating:
                engine.counter += 1
                request_id = f"chatcmpl-fake-{engine.counter}"
                answer = ChatAnswer(request_id, engine.plan.model.name)
                if request.stream:
                    self._start_stream(answer)
                started = time.monotonic()
                engine.emit(RequestStarted(request_id=request_id, prompt_tokens=prompt_tokens))
                engine.emit(
                    PrefillProgress(request_id=request_id, done_tokens=prompt_tokens, total_tokens=prompt_tokens)
                )
                pieces: list[str] = []
                for piece in self._tokens(engine.reply_to(request)[:limit]):
                    pieces.append(piece)
                    if request.stream:
                        self._send(answer.text_chunk(piece))
                took_s = time.monotonic() - started
                whole = len(engine.reply_to(request))
                outcome = Outcome(
                    finish_reason=_finish(len(pieces), min(whole, limit), cut=whole > limit),
                    prompt_tokens=prompt_tokens,
                    answer_tokens=len(pieces),
                    timings=Timings(
                        ttft_s=took_s / max(1, len(pieces)),
                        prefill_tok_s=250.0,
                        decode_tok_s=len(pieces) / took_s if took_s > 0 else None,
                    ),
                )
                engine.emit(
                    RequestDone(
                        request_id=request_id,
                        finish_reason=outcome.finish_reason,
                        prompt_tokens=prompt_tokens,
                        answer_tokens=len(pieces),
                        ttft_s=outcome.timings.ttft_s,
                        prefill_tok_s=outcome.timings.prefill_tok_s,
                        decode_tok_s=outcome.timings.decode_tok_s,
                    )
                )
            if outcome.finish_reason == "cancelled":
                self.close_connection = True
            elif request.stream:
                self._send(answer.last_chunk(outcome))
                if request.include_usage:
                    self._send(answer.usage_chunk(outcome))
                self._send(DONE)
                self._send(b"")
            else:
                self._json(200, answer.whole("".join(pieces), outcome))

        def _tokens(self, words: list[str]) -> Iterator[str]:
            """Words in the asked rhythm, until the client hangs up or the engine stops."""
            for place, word in enumerate(words):
                if place and engine.stopping.wait(engine.options.token_delay_ms / 1000):
                    return
                if self._hung_up():
                    return
                yield word

        def _hung_up(self) -> bool:
            connection = cast(socket.socket, self.connection)
            readable, _, _ = select.select([connection], [], [], 0)
            try:
                return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
            except OSError:
                return True

        def _start_stream(self, answer: ChatAnswer) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._send(KEEP_ALIVE)
            self._send(answer.role_chunk())

        def _send(self, data: bytes) -> None:
            try:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            except OSError:
                self.close_connection = True

        def _error(self, error: ApiError) -> None:
            self._json(error.status, error.body)

        def _json(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if status == 503:
                self.send_header("Retry-After", "2")
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _still_loading() -> ApiError:
    return ApiError(503, "The model is still loading.", code="loading")


def _finish(got: int, wanted: int, *, cut: bool) -> FinishReason:
    if got < wanted:
        return "cancelled"
    return "length" if cut else "stop"
