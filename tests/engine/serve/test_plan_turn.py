"""POST /v1/plan while somebody is being answered: it waits for its turn, and who comes later waits behind it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from engine.contract.errors import NotEnoughVramError
from engine.serve.plan_jobs import PlanJob
from tests.engine.serve.conftest import PATIENCE_S, Serve, Served
from tests.support.fake_model import FakeModel

CHAT, PLAN = "/v1/chat/completions", "/v1/plan"
WISH = {"context_tokens": 256}
ORDER = ("request_started", "request_done", "plan_changed")


def question(content: str = "hi", *, stream: bool = True) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}], "temperature": 0, "stream": stream}


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def text_of(response: httpx.Response) -> str:
    """Of a stream that came to its end."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines)


class Answering:
    """An engine that stands before the first token of a streamed answer."""

    def __init__(self, serve: Serve, **options: object) -> None:
        self.model = FakeModel(answers=["first", "second"], **options)  # type: ignore[arg-type]
        self.model.decode_gate.close()
        self.served: Served = serve(self.model)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """`first` is being answered when this is entered."""
        async with httpx.AsyncClient(base_url=self.served.url, timeout=PATIENCE_S) as http:
            self.first = asyncio.create_task(http.post(CHAT, json=question()))
            await asyncio.to_thread(self.model.decode_gate.wait_for_arrival)
            yield http
            self.model.decode_gate.open()
            assert text_of(await self.first) == "first"

    async def in_line(self, count: int) -> None:
        await asyncio.to_thread(self.served.wait_for_line, count)

    @property
    def order(self) -> list[str]:
        return [event.event for event in self.served.events if event.event in ORDER]


def test_a_change_comes_after_who_was_there_before_and_before_who_came_later(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> None:
        async with engine.client() as http:
            change = asyncio.create_task(http.post(PLAN, json=WISH))
            await engine.in_line(1)
            later = asyncio.create_task(http.post(CHAT, json=question()))
            await engine.in_line(2)
            engine.model.decode_gate.open()
            assert (await change).json()["plan"]["context_tokens"] == 256
            assert text_of(await later) == "second"

    asyncio.run(scenario())
    assert engine.order == ["request_started", "request_done", "plan_changed", "request_started", "request_done"]


def test_under_constant_load_a_change_waits_for_one_answer_only(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> None:
        async with engine.client() as http:
            change = asyncio.create_task(http.post(PLAN, json=WISH))
            await engine.in_line(1)
            load = [asyncio.create_task(http.post(CHAT, json=question(str(number)))) for number in range(8)]
            await engine.in_line(9)
            engine.model.decode_gate.open()
            assert (await change).status_code == 200
            assert [(await answer).status_code for answer in load] == [200] * 8

    asyncio.run(scenario())
    assert engine.order[:3] == ["request_started", "request_done", "plan_changed"]


def test_who_does_not_want_to_wait_is_told_at_once(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> None:
        async with engine.client() as http:
            refused = await http.post(f"{PLAN}?wait_s=0", json=WISH)
            assert code_of(refused) == (409, "busy")
            assert "when it is idle" in refused.json()["error"]["message"]

    asyncio.run(scenario())
    assert engine.served.client.post(f"{PLAN}?wait_s=0", json=WISH).status_code == 200, "now it is idle"


def test_a_change_that_has_waited_long_enough_leaves_the_line(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> None:
        async with engine.client() as http:
            refused = await http.post(f"{PLAN}?wait_s=0.05", json=WISH)
            assert code_of(refused) == (409, "busy")
            assert "still answering after 0.05 s" in refused.json()["error"]["message"]
            assert engine.served.session.waiting == 0

    asyncio.run(scenario())
    assert engine.order == ["request_started", "request_done"]


def test_who_hangs_up_while_waiting_has_changed_nothing(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> None:
        async with engine.client() as http:
            change = asyncio.create_task(http.post(PLAN, json=WISH))
            await engine.in_line(1)
            change.cancel()
            await engine.in_line(0)
            assert (await http.post(f"{PLAN}?wait_s=0", json=WISH)).status_code == 409, "no longer for a change, though"

    asyncio.run(scenario())
    assert engine.order == ["request_started", "request_done"]
    assert engine.served.client.post(PLAN, json=WISH).status_code == 200


def test_who_hangs_up_during_the_change_finds_it_made(serve: Serve) -> None:
    model = FakeModel()
    model.change_gate.close()
    served = serve(model)

    async def scenario() -> None:
        async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as http:
            change = asyncio.create_task(http.post(PLAN, json=WISH))
            await asyncio.to_thread(model.change_gate.wait_for_arrival)
            change.cancel()
            await asyncio.gather(change, return_exceptions=True)
        model.change_gate.open()
        await asyncio.to_thread(served.wait_for, "plan_changed")

    asyncio.run(scenario())
    assert served.chat().status_code == 200
    assert model.plan.context_tokens == 256


def test_one_change_waits_at_a_time(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> None:
        async with engine.client() as http:
            change = asyncio.create_task(http.post(PLAN, json=WISH))
            await engine.in_line(1)
            second = await http.post(PLAN, json={"context_tokens": 128})
            assert code_of(second) == (409, "busy")
            assert "Another change" in second.json()["error"]["message"]
            engine.model.decode_gate.open()
            assert (await change).status_code == 200

    asyncio.run(scenario())


def test_a_plan_that_can_never_be_taken_need_not_wait_to_hear_so(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> None:
        async with engine.client() as http:
            assert code_of(await http.post(PLAN, json={"context_tokens": 4096})) == (400, "plan_mismatch")
            other = engine.model.plan.model_copy(update={"model_dir": "/elsewhere"})
            assert code_of(await http.post(PLAN, content=other.model_dump_json())) == (400, "plan_mismatch")

    asyncio.run(scenario())


def test_a_change_that_is_refused_when_its_turn_comes_leaves_all_as_it_was(serve: Serve) -> None:
    engine = Answering(
        serve, fail_change=lambda: NotEnoughVramError(needed_bytes=2, available_bytes=1, fix="Close programs.")
    )
    old = engine.model.plan

    async def scenario() -> None:
        async with engine.client() as http:
            change = asyncio.create_task(http.post(PLAN, json=WISH))
            await engine.in_line(1)
            later = asyncio.create_task(http.post(CHAT, json=question()))
            await engine.in_line(2)
            engine.model.decode_gate.open()
            assert code_of(await change) == (507, "vram")
            assert text_of(await later) == "second"

    asyncio.run(scenario())
    assert engine.model.plan == old


def test_a_prompt_that_does_not_fit_after_the_change_fails_alone(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> None:
        async with engine.client() as http:
            change = asyncio.create_task(http.post(PLAN, json={"context_tokens": 16}))
            await engine.in_line(1)
            later = asyncio.create_task(http.post(CHAT, json=question("more than sixteen bytes of text", stream=False)))
            await engine.in_line(2)
            engine.model.decode_gate.open()
            assert (await change).status_code == 200
            assert code_of(await later) == (400, "context_length_exceeded")

    asyncio.run(scenario())
    assert engine.model.recovered == 0, "nothing had been computed"
    assert engine.served.problems == []


def test_an_engine_that_is_stopped_tells_a_change_that_waits(serve: Serve) -> None:
    engine = Answering(serve)

    async def scenario() -> tuple[int, str]:
        async with httpx.AsyncClient(base_url=engine.served.url, timeout=PATIENCE_S) as http:
            first = asyncio.create_task(http.post(CHAT, json=question()))
            await asyncio.to_thread(engine.model.decode_gate.wait_for_arrival)
            change = asyncio.create_task(http.post(PLAN, json=WISH))
            await engine.in_line(1)
            stopping = asyncio.create_task(asyncio.to_thread(engine.served.session.stop, PATIENCE_S))
            while engine.served.session.status != "stopping":
                await asyncio.sleep(0)
            engine.model.decode_gate.open()
            assert "was stopped" in (await first).text
            assert await stopping
            return code_of(await change)

    assert asyncio.run(scenario()) == (503, "stopping")
    assert engine.order == ["request_started", "request_done"]


def test_a_change_that_was_called_off_in_the_moment_it_was_taken_is_not_made(serve: Serve) -> None:
    served = serve()
    plan_job = PlanJob(served.model.plan)
    assert plan_job.done.cancel()
    assert served.session._line.put_plan(plan_job, waits=True) is None
    assert served.chat().status_code == 200, "the thread goes on"
    assert not served.seen("plan_changed")


@pytest.mark.parametrize("wait_s", ["-1", "nan", "soon", "1e9", ""])
def test_a_time_to_wait_that_is_none_is_refused(serve: Serve, wait_s: str) -> None:
    response = serve().client.post(f"{PLAN}?wait_s={wait_s}", json=WISH)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "wait_s"
