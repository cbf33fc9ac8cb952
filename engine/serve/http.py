"""The HTTP API on 127.0.0.1: OpenAI's chat completions, and what the launcher asks. Refuses other hosts' pages."""

import logging
import time
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.contract.errors import SplitpinError
from engine.generate.request import Outcome
from engine.serve.bodies import Bodies
from engine.serve.exchange import Exchange, Happening, Quiet
from engine.serve.messages import PromptCancelledError
from engine.serve.openai import DONE, KEEP_ALIVE, ApiError, ChatAnswer, api_error, read_chat_request, sse
from engine.serve.plan_jobs import read_wish
from engine.serve.plan_turn import read_wait, turn_of
from engine.serve.problems import answer_problem
from engine.serve.session import RETRY_AFTER_S, Session

log = logging.getLogger(__name__)

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
FIRST_PIECE_S = 5.0  # an error before that gets its HTTP status; after it the stream has begun
SILENCE_S = 10.0  # a comment this often keeps proxies and clients from giving up during a long prefill
MOST_PREPARING = 4  # prompts at once: Python runs one at a time, and the model is to have its turns too
CLIENT_GONE = 499  # nobody reads it; the log does


class LocalOnly:
    """Refuses requests that a web page could send: a foreign Host (DNS rebinding) or a foreign Origin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = _hostname("//" + headers.get(b"host", ""))
        origin = headers.get(b"origin")
        if host not in LOCAL_NAMES:
            await _error(ApiError(403, f"Host {host!r} is not this machine.", code="host"))(scope, receive, send)
        elif origin is not None and _hostname(origin) not in LOCAL_NAMES:
            await _error(ApiError(403, f"Origin {origin!r} is not this machine.", code="origin"))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _error(error: ApiError) -> JSONResponse:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.status == 503 else None
    return JSONResponse(error.body, status_code=error.status, headers=headers)


def create_app(session: Session) -> FastAPI:
    """The routes over one session."""
    app = FastAPI(title="Splitpin engine", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(LocalOnly)
    bodies = Bodies()
    preparing = CapacityLimiter(MOST_PREPARING)
    _handle_errors(app)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        loading, status = session.loading, session.status
        return {
            "status": status,
            "stage": loading.stage if loading is not None and status == "loading" else None,
            "bytes_done": loading.bytes_done if loading else 0,
            "bytes_total": loading.bytes_total if loading else 0,
            "model": session.name,
        }

    @app.get("/residency")
    async def residency() -> Response:
        return Response(session.model.residency().model_dump_json(), media_type="application/json")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        model = session.model
        entry = {"id": model.name, "object": "model", "created": 0, "owned_by": "splitpin"}
        return {"object": "list", "data": [{**entry, "context_tokens": model.context_tokens}]}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        accepted_s = time.monotonic()
        answer = ChatAnswer(f"chatcmpl-{uuid.uuid4().hex}", session.model.name)
        exchange = Exchange()
        outlived = False
        try:
            async with bodies.body_of(request) as body:
                asked = read_chat_request(body)
                exchange.watch(request, session)
                prepare = partial(session.prepare, answer.request_id, asked, lambda: exchange.is_gone)
                wanted = await to_thread.run_sync(prepare, limiter=preparing)
            exchange.wait_for(session, session.submit(wanted, exchange, accepted_s=accepted_s))
            if not asked.stream:
                return await _whole(answer, exchange)
            response = await _stream(answer, exchange, include_usage=asked.include_usage)
            outlived = isinstance(response, StreamingResponse)
            return response
        finally:
            if not outlived:
                exchange.unwatch()

    @app.get("/v1/plan")
    async def running_plan() -> dict[str, Any]:
        model = session.model
        return {"plan": model.plan.model_dump(mode="json"), "residency": model.residency().model_dump(mode="json")}

    @app.post("/v1/plan")
    async def plan(request: Request) -> Response:
        wait_s = read_wait(request.query_params.get("wait_s"))
        async with bodies.body_of(request) as body:
            wanted = read_wish(body)
        plan_job = await run_in_threadpool(session.change_plan, wanted, waits=wait_s > 0)
        changed = await turn_of(plan_job, request, session, wait_s or None)
        if changed is None:
            return Response(status_code=CLIENT_GONE)
        return Response(changed.model_dump_json(exclude={"event"}), media_type="application/json")

    return app


async def _whole(answer: ChatAnswer, exchange: Exchange) -> Response:
    parts: list[str] = []
    async for happening in exchange.all_from(await exchange.next(), SILENCE_S):
        match happening:
            case str() as piece:
                parts.append(piece)
            case Outcome() as outcome:
                return JSONResponse(answer.whole("".join(parts), outcome))
            case SplitpinError() as problem:
                raise api_error(problem)
            case _:
                continue
    return Response(status_code=CLIENT_GONE)


async def _stream(answer: ChatAnswer, exchange: Exchange, *, include_usage: bool) -> Response:
    first = await exchange.next(FIRST_PIECE_S)
    if isinstance(first, SplitpinError):
        raise api_error(first)
    if first is Quiet.GONE:
        return Response(status_code=CLIENT_GONE)
    chunks = _chunks(answer, exchange, first, include_usage=include_usage)
    return StreamingResponse(chunks, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _chunks(
    answer: ChatAnswer, exchange: Exchange, first: Happening, *, include_usage: bool
) -> AsyncIterator[bytes]:
    """The stream of one answer. Its watcher outlives it if the client hangs up, and only then has work to do."""
    yield answer.role_chunk()
    async for happening in exchange.all_from(first, SILENCE_S):
        match happening:
            case str() as piece:
                yield answer.text_chunk(piece)
            case Outcome() as outcome:
                exchange.unwatch()
                yield answer.last_chunk(outcome)
                if include_usage:
                    yield answer.usage_chunk(outcome)
                yield DONE
            case SplitpinError() as problem:
                exchange.unwatch()
                yield sse(api_error(problem).body)
            case Quiet.SILENCE:
                yield KEEP_ALIVE
            case Quiet.GONE:
                return


def _handle_errors(app: FastAPI) -> None:
    """Every error leaves in OpenAI's shape."""

    @app.exception_handler(ApiError)
    async def known(request: Request, error: ApiError) -> Response:
        return _error(error)

    @app.exception_handler(SplitpinError)
    async def typed(request: Request, error: SplitpinError) -> Response:
        return _error(api_error(error))

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        what = f"{request.method} {request.url.path}"
        if error.status_code == 405:
            return _error(ApiError(405, f"{what}: the path exists, but not for this method.", code="method"))
        return _error(ApiError(error.status_code, f"There is nothing at {what}.", code="not_found"))

    @app.exception_handler(PromptCancelledError)
    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _error(api_error(answer_problem(error)))
