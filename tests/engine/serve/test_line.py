"""Clients in line: first come first served, and whoever hangs up costs at most one more token."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from engine.contract.events import RequestDone
from tests.engine.serve.conftest import PATIENCE_S, Serve, Served
from tests.support.fake_model import FakeModel

LONG = "abcdefghijklmnopqrstuvwxyz" * 4


def body(*, stream: bool) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "stream": stream}


@asynccontextmanager
async def client(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as http:
        yield http


async def in_thread(served: Served, kind: str, count: int = 1) -> RequestDone | None:
    event = await asyncio.to_thread(served.wait_for, kind, count)
    return event if isinstance(event, RequestDone) else None


def test_hanging_up_in_a_stream_cancels_within_one_token(serve: Serve) -> None:
    model = FakeModel(answers=[LONG])
    model.decode_gate.close()
    served = serve(model)

    async def scenario() -> RequestDone | None:
        async with client(served) as http, http.stream("POST", "/v1/chat/completions", json=body(stream=True)) as got:
            model.decode_gate.let(3)
            text = ""
            async for line in got.aiter_lines():
                if line.startswith("data: "):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                if text == LONG[:4]:
                    break
        await asyncio.to_thread(served.wait_until_cancelled)
        model.decode_gate.let(1)  # the token that was being computed when the client hung up
        return await in_thread(served, "request_done")

    done = asyncio.run(scenario())
    assert done is not None
    assert done.finish_reason == "cancelled"
    assert model.decoded == 4


def test_hanging_up_without_a_stream_cancels_within_one_token(serve: Serve) -> None:
    model = FakeModel(answers=[LONG])
    model.decode_gate.close()
    served = serve(model)

    async def scenario() -> RequestDone | None:
        async with client(served) as http:
            waiting = asyncio.create_task(http.post("/v1/chat/completions", json=body(stream=False)))
            await asyncio.to_thread(model.decode_gate.wait_for_arrival)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.to_thread(served.wait_until_cancelled)
        model.decode_gate.let(1)
        return await in_thread(served, "request_done")

    done = asyncio.run(scenario())
    assert done is not None
    assert (done.finish_reason, model.decoded) == ("cancelled", 1)


def test_hanging_up_during_prefill_ends_it_between_two_chunks(serve: Serve) -> None:
    model = FakeModel(chunk=1)
    model.prefill_gate.close()
    served = serve(model)

    async def scenario() -> RequestDone | None:
        async with client(served) as http:
            waiting = asyncio.create_task(http.post("/v1/chat/completions", json=body(stream=True)))
            await asyncio.to_thread(model.prefill_gate.wait_for_arrival)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.to_thread(served.wait_until_cancelled)
        model.prefill_gate.let(1)
        return await in_thread(served, "request_done")

    done = asyncio.run(scenario())
    assert done is not None
    assert (done.finish_reason, model.decoded, model.cached_tokens) == ("cancelled", 0, 0)


def test_two_clients_are_answered_one_after_the_other(serve: Serve) -> None:
    model = FakeModel(answers=["first", "second"])
    model.decode_gate.close()
    served = serve(model)

    async def scenario() -> list[str]:
        async with client(served) as http:
            one = asyncio.create_task(http.post("/v1/chat/completions", json=body(stream=False)))
            await asyncio.to_thread(model.decode_gate.wait_for_arrival)
            two = asyncio.create_task(http.post("/v1/chat/completions", json=body(stream=False)))
            await asyncio.to_thread(served.wait_for_line, 1)
            assert len(served.seen("request_started")) == 1
            model.decode_gate.open()
            answers = await asyncio.gather(one, two)
        return [answer.json()["choices"][0]["message"]["content"] for answer in answers]

    assert asyncio.run(scenario()) == ["first", "second"]
    order = [event.event for event in served.events if event.event in ("request_started", "request_done")]
    assert order == ["request_started", "request_done"] * 2


def test_a_client_that_hangs_up_in_line_is_never_computed(serve: Serve) -> None:
    model = FakeModel(answers=["first", "third"])
    model.decode_gate.close()
    served = serve(model)

    async def scenario() -> list[str]:
        async with client(served) as http, client(served) as leaving:
            one = asyncio.create_task(http.post("/v1/chat/completions", json=body(stream=False)))
            await asyncio.to_thread(model.decode_gate.wait_for_arrival)
            two = asyncio.create_task(leaving.post("/v1/chat/completions", json=body(stream=True)))
            await asyncio.to_thread(served.wait_for_line, 1)
            two.cancel()
            await asyncio.gather(two, return_exceptions=True)
            await asyncio.to_thread(served.wait_for_line, 0)
            three = asyncio.create_task(http.post("/v1/chat/completions", json=body(stream=False)))
            await asyncio.to_thread(served.wait_for_line, 1)
            model.decode_gate.open()
            answers = await asyncio.gather(one, three)
        return [answer.json()["choices"][0]["message"]["content"] for answer in answers]

    assert asyncio.run(scenario()) == ["first", "third"]
    assert len(served.seen("request_started")) == 2


@pytest.mark.parametrize("stream", [True, False])
def test_stopping_the_engine_ends_a_running_answer_with_a_sentence(serve: Serve, stream: bool) -> None:
    model = FakeModel(answers=[LONG])
    model.decode_gate.close()
    served = serve(model)

    async def scenario() -> str:
        async with client(served) as http:
            asking = asyncio.create_task(http.post("/v1/chat/completions", json=body(stream=stream)))
            await asyncio.to_thread(model.decode_gate.wait_for_arrival)
            stopping = asyncio.create_task(asyncio.to_thread(served.session.stop, PATIENCE_S))
            while served.session.status != "stopping":
                await asyncio.sleep(0)
            model.decode_gate.let(1)
            answer = await asking
            assert await stopping
            return answer.text

    assert "was stopped before the answer was complete" in asyncio.run(scenario())
    assert model.closed
    assert model.decoded == 1
