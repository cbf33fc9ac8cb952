"""What the launcher asks, the error shapes, and who may ask at all."""

from typing import Any

import httpx
import pytest

from engine.contract.errors import NotEnoughRamError
from engine.contract.residency import ResidencyReport
from engine.serve.problems import PortTakenError
from engine.serve.server import bind
from tests.engine.serve.conftest import PATIENCE_S, Serve
from tests.support.fake_model import RESIDENCY, FakeModel


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/residency")]
)
def test_everything_but_health_answers_503_while_loading(serve: Serve, method: str, path: str) -> None:
    served = serve(loaded=False)
    response = served.client.request(method, path, json={"messages": [{"role": "user", "content": "x"}]})
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    assert response.json()["error"]["code"] == "loading"
    assert response.json()["error"]["type"] == "server_error"


def test_health_tells_loading_ready_and_stopping(serve: Serve) -> None:
    served = serve(loaded=False)
    loading = served.client.get("/health").json()
    assert loading == {"status": "loading", "stage": None, "bytes_done": 0, "bytes_total": 0, "model": "scripted"}
    served.finish_loading()
    assert served.client.get("/health").json()["status"] == "ready"
    assert served.session.stop(PATIENCE_S)
    assert served.client.get("/health").json()["status"] == "stopping"
    assert served.chat().status_code == 503


def test_models_lists_the_one_model(serve: Serve) -> None:
    body = serve(FakeModel(context_tokens=777)).client.get("/v1/models").json()
    assert body["object"] == "list"
    assert [(entry["id"], entry["object"], entry["context_tokens"]) for entry in body["data"]] == [
        ("scripted", "model", 777)
    ]


def test_residency_is_the_report(serve: Serve) -> None:
    response = serve().client.get("/residency")
    assert ResidencyReport.model_validate_json(response.content) == RESIDENCY


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "192.168.1.4", ""])
def test_a_foreign_host_header_is_refused(serve: Serve, host: str) -> None:
    response = serve().client.get("/health", headers={"Host": host})
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "host"


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "LOCALHOST:80", "[::1]:5"])
def test_names_of_this_machine_are_accepted(serve: Serve, host: str) -> None:
    assert serve().client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"), [("https://evil.example", 403), ("null", 403), ("http://localhost:3", 200)]
)
def test_a_web_page_of_another_site_cannot_ask(serve: Serve, origin: str, status: int) -> None:
    response = serve().client.get("/health", headers={"Origin": origin})
    assert response.status_code == status
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("POST", "/", 404), ("GET", "/v1/chat/completions", 405), ("GET", "/docs", 404)],
)
def test_unknown_routes_are_errors_in_the_same_shape(serve: Serve, method: str, path: str, status: int) -> None:
    response = serve().client.request(method, path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "code", "param"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotEnoughRamError(needed_bytes=10, available_bytes=5, fix="Close programs."), "ram"),
        (KeyError("model.norm.weight"), "internal"),
    ],
)
def test_a_load_that_fails_is_reported_as_a_problem(serve: Serve, error: Exception, kind: str) -> None:
    served = serve(loaded=False)
    served.fail_loading(error)
    served.session.join(PATIENCE_S)
    (problem,) = served.problems
    assert problem.kind == kind
    assert problem.sentence.endswith(".")
    assert not served.seen("ready")


def test_stopping_while_loading_is_no_failure(serve: Serve) -> None:
    served = serve(loaded=False)
    assert served.session.stop(PATIENCE_S)
    assert served.problems == []
    assert served.events == []


def test_a_port_that_is_taken_is_a_typed_error_with_its_number() -> None:
    with bind(0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortTakenError) as caught:
            bind(port)
    assert caught.value.numbers == {"port": port}
    assert caught.value.sentence == f"Port {port} of 127.0.0.1 cannot be used: another program listens there."


def test_a_broken_client_does_no_harm(serve: Serve) -> None:
    served = serve()
    answers: list[Any] = []
    for content in (b"\xff\xfe", b"[]", b'"text"', b'{"messages": [{"role": "user", "content": "\\ud800"}]}'):
        answers.append(served.client.post("/v1/chat/completions", content=content).status_code)
    assert answers[:3] == [400, 400, 400]
    assert answers[3] < 500
    assert served.chat().status_code == httpx.codes.OK
