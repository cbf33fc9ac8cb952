"""When the engine looks whether its books agree, and what it tells."""

import pytest

from engine.contract.events import IntegrityBroken
from tests.engine.serve.conftest import PATIENCE_S, Serve
from tests.support.fake_model import FakeModel

FINDING = "3 slots are taken and 2 are free; there are 4."


def test_an_idle_engine_looks_now_and_then_and_tells_a_finding_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.serve.session.LOOK_AFTER_S", 0.01)
    model = FakeModel(findings=(FINDING,))
    served = serve(model)
    for _ in range(3):
        assert model.looked.acquire(timeout=PATIENCE_S)
    [event] = served.seen("integrity_broken")
    assert isinstance(event, IntegrityBroken) and event.findings == (FINDING,)
    assert served.chat().status_code == 200, "it goes on"


def test_books_that_agree_are_no_news(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.serve.session.LOOK_AFTER_S", 0.01)
    model = FakeModel()
    served = serve(model)
    for _ in range(3):
        assert model.looked.acquire(timeout=PATIENCE_S)
    assert not served.seen("integrity_broken")


def test_a_request_that_failed_is_followed_by_a_look(serve: Serve) -> None:
    errors: list[Exception | None] = [RuntimeError("scripted")]
    model = FakeModel(fail_prefill=lambda: errors.pop() if errors else None)
    assert serve(model).chat().status_code == 500
    assert model.looked.acquire(timeout=PATIENCE_S)


def test_a_request_that_was_answered_is_not(serve: Serve) -> None:
    model = FakeModel()
    served = serve(model)
    assert served.chat().status_code == 200
    assert served.chat().status_code == 200
    assert not model.looked.acquire(blocking=False)
