"""POST /v1/plan: another split for a running engine; test_plan_turn.py has what happens while it answers."""

import threading
from concurrent.futures import Future

import httpx
import pytest

from engine.contract.errors import ContextTooLongError, NotEnoughVramError, SplitpinError
from engine.contract.events import PlanChanged
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.plan_change import PlanWish, changed_plan
from engine.generate.request import Outcome
from engine.model.change import ChangeNotUndoneError
from engine.serve.openai import ChatRequest
from engine.serve.plan_jobs import PlanJob
from engine.system.protocols import PinRefusedError
from tests.engine.serve.conftest import PATIENCE_S, Serve, Served
from tests.support.fake_model import RESIDENCY, FakeModel


def _ask(served: Served, body: object) -> httpx.Response:
    return served.client.post("/v1/plan", json=body)


def test_a_few_fields_are_enough_and_the_answer_and_the_event_have_the_whole_plan(serve: Serve) -> None:
    served = serve()
    old = served.model.plan
    response = _ask(served, {"context_tokens": 256, "tiers": ["locked", "pageable", "locked"]})
    assert response.status_code == 200
    want = changed_plan(old, PlanWish(context_tokens=256, tiers=(Tier.LOCKED, Tier.PAGEABLE, Tier.LOCKED)))
    assert MemoryPlan.model_validate(response.json()["plan"]) == want == served.model.plan
    assert response.json()["residency"] == RESIDENCY.model_dump(mode="json")
    event = served.wait_for("plan_changed")
    assert isinstance(event, PlanChanged) and event.plan == want
    assert served.client.get("/v1/models").json()["data"][0]["context_tokens"] == 256


def test_a_whole_plan_is_taken_as_it_is(serve: Serve) -> None:
    served = serve()
    want = changed_plan(served.model.plan, PlanWish(context_tokens=256))
    response = served.client.post("/v1/plan", content=want.model_dump_json())
    assert response.status_code == 200
    assert served.model.plan == want


def test_prompts_are_measured_against_the_new_context(serve: Serve) -> None:
    served = serve()
    assert _ask(served, {"context_tokens": 16}).status_code == 200
    answer = served.chat("a question of more than sixteen bytes")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tiers": ["locked"]}, "1 tiers were given; tiny has 3 layers"),
        ({"context_tokens": 0}, "context_tokens: "),
        ({"context_tokens": True}, "context_tokens: "),
        ({"context_tokens": 4096}, "a context of 2,048 tokens; 4,096 were asked for"),
        ({"tiers": ["gold", "locked", "locked"]}, "tiers.0: "),
        ({"colour": "red"}, "colour: "),
        ({"tiers": ["vram", "locked", "locked"]}, "a CPU plan has no vram or pinned layers"),
        ([], "should be an object"),
    ],
)
def test_a_plan_that_is_none_is_a_400_and_changes_nothing(serve: Serve, body: object, words: str) -> None:
    served = serve()
    old = served.model.plan
    response = _ask(served, body)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    assert served.model.plan == old
    assert not served.seen("plan_changed")


@pytest.mark.parametrize("body", [b"{", b"", b"[" * 100_000, b'{"a":' * 90_000, b'{"a":' + b"9" * 5000 + b"}"])
def test_what_is_no_json_is_said_to_be_none(serve: Serve, body: bytes) -> None:
    response = serve().client.post("/v1/plan", content=body)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "not JSON" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotEnoughVramError(needed_bytes=10, available_bytes=5, fix="Close programs."), 507, "vram"),
        (PinRefusedError(asked_bytes=10, code=2, words="out of memory"), 507, "pin_refused"),
        (MemoryError(), 500, "ram"),
        (KeyError("x"), 500, "answer_failed"),
    ],
)
def test_a_refusal_is_a_typed_error_with_its_numbers_and_the_engine_goes_on(
    serve: Serve, error: Exception, status: int, code: str
) -> None:
    served = serve(FakeModel(fail_change=lambda: error))
    response = _ask(served, {"context_tokens": 256})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert "numbers" in response.json()["error"]
    assert served.chat().status_code == 200
    assert served.problems == []


class AsksForAnother:
    """Asks for another split in the moment it hears how its request ended."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.changes: list[PlanJob] = []
        self.heard = threading.Event()

    def text(self, piece: str) -> None: ...

    def done(self, outcome: Outcome) -> None:
        self.ask(256)

    def failed(self, problem: SplitpinError) -> None:
        self.ask(256)

    def ask(self, context_tokens: int) -> None:
        try:
            self.changes.append(self.served.session.change_plan(PlanWish(context_tokens=context_tokens), waits=False))
        finally:
            self.heard.set()

    def submit(self) -> None:
        asked = ChatRequest.model_validate({"messages": [{"role": "user", "content": "hi"}], "temperature": 0})
        self.served.session.submit(self.served.session.prepare("first", asked), self, accepted_s=0.0)


@pytest.mark.parametrize("fails", [False, True])
def test_who_has_heard_the_end_of_an_answer_finds_the_engine_idle(serve: Serve, fails: bool) -> None:
    served = serve(FakeModel(fail_prefill=lambda: RuntimeError("scripted") if fails else None))
    client = AsksForAnother(served)
    client.submit()
    assert client.heard.wait(PATIENCE_S)
    assert [change.done.result(PATIENCE_S).plan.context_tokens for change in client.changes] == [256]


def test_who_has_heard_of_a_change_finds_the_engine_idle_and_the_new_context_known(serve: Serve) -> None:
    served = serve(FakeModel(context_tokens=16))
    client = AsksForAnother(served)
    long = ChatRequest.model_validate({"messages": [{"role": "user", "content": "a" * 200_000}]})
    refusals: list[SplitpinError] = []

    def told(change: Future[PlanChanged]) -> None:
        try:
            served.session.prepare("second", long)
        except ContextTooLongError as refusal:
            refusals.append(refusal)
        client.ask(128)

    served.session.change_plan(PlanWish(context_tokens=256)).done.add_done_callback(told)
    assert client.heard.wait(PATIENCE_S)
    assert client.changes[0].done.result(PATIENCE_S).plan.context_tokens == 128
    assert refusals[0].numbers["context_tokens"] == 256


def test_a_question_that_comes_during_a_change_waits_for_it(serve: Serve) -> None:
    served = serve()
    served.model.change_gate.close()
    statuses: list[int] = []
    change = threading.Thread(target=lambda: statuses.append(_ask(served, {"context_tokens": 256}).status_code))
    change.start()
    served.model.change_gate.wait_for_arrival()
    chat = threading.Thread(target=lambda: statuses.append(served.chat().status_code))
    chat.start()
    served.wait_for_line(1)
    assert _ask(served, {"context_tokens": 128}).status_code == 409
    served.model.change_gate.open()
    change.join(PATIENCE_S)
    chat.join(PATIENCE_S)
    assert statuses == [200, 200]


def test_while_loading_there_is_no_plan_to_change(serve: Serve) -> None:
    assert _ask(serve(loaded=False), {"context_tokens": 256}).status_code == 503


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_web_pages_of_others_cannot_change_the_split(serve: Serve, header: dict[str, str]) -> None:
    served = serve()
    assert served.client.post("/v1/plan", json={"context_tokens": 256}, headers=header).status_code == 403
    assert not served.seen("plan_changed")


def test_a_change_that_cannot_be_undone_ends_the_engine(serve: Serve) -> None:
    error = ChangeNotUndoneError("The old split could not be restored.", "Start the engine again.")
    served = serve(FakeModel(fail_change=lambda: error))
    response = _ask(served, {"context_tokens": 256})
    assert (response.status_code, response.json()["error"]["code"]) == (500, "plan_change")
    assert served.session.join(PATIENCE_S)
    assert [problem.kind for problem in served.problems] == ["plan_change"]


def test_the_plan_that_runs_can_be_asked_for_before_and_after_a_change(serve: Serve) -> None:
    served = serve()
    before = served.client.get("/v1/plan").json()
    assert MemoryPlan.model_validate(before["plan"]) == served.model.plan
    assert before["residency"] == RESIDENCY.model_dump(mode="json")
    assert _ask(served, {"context_tokens": 256}).status_code == 200
    assert served.client.get("/v1/plan").json()["plan"]["context_tokens"] == 256
