"""A chat template that does not end by itself, behind a running engine: who asked is told, the others go on."""

import asyncio
import itertools
import threading
from typing import Any

import httpx
import pytest
from typing_extensions import override

from engine.contract.errors import ContextTooLongError
from engine.serve import messages, template_meter
from engine.serve.messages import PromptMaker
from engine.serve.openai import ApiError, ChatMessage
from engine.serve.template_meter import Meter
from tests.engine.serve.conftest import PATIENCE_S, Serve
from tests.support.fake_model import EASY_TEMPLATE, FakeModel, byte_tokenizer

ENDLESS = (
    "{% for m in messages %}{% if m.content == 'endless' %}{% for a in range(100000) %}{% for b in range(100000) %}"
    "{% endfor %}{% endfor %}{% endif %}{% endfor %}" + EASY_TEMPLATE
)
CHAT = "/v1/chat/completions"


@pytest.fixture
def without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a client that hangs up ends a template."""
    monkeypatch.setattr(template_meter, "ALL_TIMES", 1 << 40)
    monkeypatch.setattr(template_meter, "TIME_S", 3600.0)


def test_a_template_that_makes_a_gigabyte_is_a_400_with_its_limit(serve: Serve) -> None:
    served = serve(FakeModel(chat_template="{% for m in messages %}{{ m.content * 1000000000 }}{% endfor %}"))
    for stream in (False, True):
        response = served.chat("hi", stream=stream)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "chat_template_limit")
        assert error["numbers"]["limit_chars"] == template_meter.SPARE_CHARS + 4 * 2
        assert "mend its chat_template" in error["fix"]


def test_a_template_without_an_end_is_a_400(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_meter, "ALL_TIMES", 1)
    served = serve(FakeModel(chat_template=ENDLESS))
    assert served.chat("endless").json()["error"]["code"] == "chat_template_limit"
    assert served.chat("hi").status_code == 200


class Watched(Meter):
    """Tells when a rendering is under way."""

    steps: threading.Semaphore

    @override
    def step(self) -> None:
        self.steps.release()
        super().step()


@pytest.mark.usefixtures("without_limits")
def test_others_are_answered_meanwhile_and_hanging_up_ends_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    Watched.steps = threading.Semaphore(0)
    ended: list[Exception] = []
    ends = threading.Event()
    make = PromptMaker.token_ids

    def token_ids(self: PromptMaker, *args: Any) -> tuple[int, ...]:
        try:
            return make(self, *args)
        except Exception as error:
            ended.append(error)
            ends.set()
            raise

    monkeypatch.setattr(messages, "Meter", Watched)
    monkeypatch.setattr(PromptMaker, "token_ids", token_ids)
    served = serve(FakeModel(chat_template=ENDLESS))

    async def scenario() -> None:
        async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as http:
            body = {"messages": [{"role": "user", "content": "endless"}]}
            hangs = asyncio.create_task(http.post(CHAT, json=body))
            for _ in range(50):
                assert await asyncio.to_thread(Watched.steps.acquire, timeout=PATIENCE_S)
            other = await asyncio.to_thread(served.chat, "hi")
            assert other.status_code == 200
            assert not ended
            hangs.cancel()
            await asyncio.gather(hangs, return_exceptions=True)
        assert await asyncio.to_thread(ends.wait, PATIENCE_S)

    asyncio.run(scenario())
    assert [type(error) for error in ended] == [messages.PromptCancelledError]
    assert len(served.seen("request_started")) == 1, "what nobody waits for is not computed"


@pytest.mark.parametrize(("all_times", "named"), [(64, 3), (1, 7)])
def test_the_turn_that_is_refused_is_named_as_far_as_that_is_found_within_the_limits(
    all_times: int, named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each beginning of the conversation is tried; where that takes too much, the last turn is named."""
    monkeypatch.setattr(template_meter, "ALL_TIMES", all_times)
    monkeypatch.setattr(template_meter, "SPARE_CHARS", 0)
    refuse = "{% if messages|length > 3 %}{{ raise_exception('too many') }}{% endif %}"
    prompts = PromptMaker(byte_tokenizer(EASY_TEMPLATE + refuse), 1 << 20)
    turns = [ChatMessage(role=("user", "assistant")[number % 2], content="a" * 50_000) for number in range(8)]
    with pytest.raises(ApiError, match=rf"refuses messages\[{named}\] .* too many"):
        prompts.token_ids(turns)


def test_a_client_that_hangs_up_is_heard_while_long_text_is_counted() -> None:
    asked = itertools.count()
    with pytest.raises(messages.PromptCancelledError):
        PromptMaker(byte_tokenizer(), 60_000)._refuse_if_huge("a" * 1_000_000, lambda: next(asked) > 0)


def test_a_text_that_is_far_too_long_is_told_by_its_first_pieces() -> None:
    asked = itertools.count()
    with pytest.raises(ContextTooLongError, match="has 10000000 tokens"):
        PromptMaker(byte_tokenizer(), 16)._refuse_if_huge("a" * 10_000_000, lambda: next(asked) > 3)


@pytest.mark.usefixtures("without_limits")
def test_few_prompts_are_made_at_once_and_who_hangs_up_makes_room(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    Watched.steps = threading.Semaphore(0)
    monkeypatch.setattr(messages, "Meter", Watched)
    monkeypatch.setattr("engine.serve.http.MOST_PREPARING", 1)
    served = serve(FakeModel(chat_template=ENDLESS))

    async def scenario() -> int:
        async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as http:
            body = {"messages": [{"role": "user", "content": "endless"}]}
            hangs = asyncio.create_task(http.post(CHAT, json=body))
            assert await asyncio.to_thread(Watched.steps.acquire, timeout=PATIENCE_S)
            waits = asyncio.create_task(http.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}]}))
            for _ in range(1000):
                assert await asyncio.to_thread(Watched.steps.acquire, timeout=PATIENCE_S)
            assert not waits.done()
            hangs.cancel()
            await asyncio.gather(hangs, return_exceptions=True)
            return (await waits).status_code

    assert asyncio.run(scenario()) == 200
