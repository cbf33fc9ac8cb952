"""What clients may ask of the engine at once: bodies, parts, connections, places in line, and words on its pipe."""

import asyncio
import io
import json
import os
import socket
import threading
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serve import bodies, connections, session
from engine.serve.bodies import MOST_PARTS, check_parts, count_parts
from engine.serve.openai import MAX_STOP_CHARS, ApiError
from engine.serve.process import MOST_COMMAND_BYTES, EngineProcess
from tests.engine.serve.conftest import PATIENCE_S, Serve, Served
from tests.support.fake_model import FakeModel

CHAT = "/v1/chat/completions"
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n"


def _connected(served: Served) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE_S)
    made.settimeout(PATIENCE_S)
    return made


def _rest(connection: socket.socket) -> bytes:
    """What the server says until it closes the connection."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[' + b"{}," * MOST_PARTS + b"{}]}",
        b'{"messages":[' + b"1," * MOST_PARTS + b"1]}",
        b'{"messages":[{"role":"user","content":"hi"}],"tools":' + b"[" * MOST_PARTS,
        b'{"messages":[{"role":"user","content":"hi"}],"stop":[' + b'"a",' * MOST_PARTS + b'"a"]}',
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/plan"])
def test_a_body_of_too_many_parts_is_refused_before_it_is_read(serve: Serve, body: bytes, path: str) -> None:
    response = serve().client.post(path, content=body)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    assert f"more than {MOST_PARTS:,} parts" in response.json()["error"]["message"]


texts = st.text(alphabet='a,[{"\\é\n', max_size=30)
values = st.recursive(
    texts | st.integers(), lambda parts: st.lists(parts, max_size=5) | st.dictionaries(texts, parts, max_size=5)
)


def _parts(value: Any) -> int:
    """Commas, brackets and braces that JSON puts around a value."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(len(value) - 1, 0) + sum(map(_parts, inner))
    return 0


@given(value=values, ascii_only=st.booleans())
def test_signs_inside_texts_are_no_parts(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert count_parts(body, MOST_PARTS) == _parts(value)
    assert count_parts(body, 3) >= min(_parts(value), 3)


def test_a_long_text_of_commas_is_a_text() -> None:
    check_parts(json.dumps({"messages": [{"role": "user", "content": '{"a": [1, 2]}, ' * MOST_PARTS}]}).encode())
    with pytest.raises(ApiError, match="100,000 parts"):
        check_parts(b'"\\",' + b"," * (MOST_PARTS + 1) + b'"' + b"," * (MOST_PARTS + 1))


def test_large_bodies_count_together_and_leave_room_when_they_are_done(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MOST_HELD_BYTES", 3000)
    served = serve()
    with _connected(served) as slow:
        slow.sendall(HEAD.format(2500).encode() + b" " * 2000)
        answers = (served.chat("a" * 1500) for _ in range(200))
        refused = next(answer for answer in answers if answer.status_code != 200)  # the first one has arrived
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
        assert served.chat("short").status_code == 200
        slow.sendall(b" " * 500)
        assert b"400 Bad Request" in slow.recv(65536)
    assert served.chat("a" * 1500).status_code == 200


def test_a_body_that_does_not_come_to_an_end_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WITHIN_S", 0.05)
    with _connected(serve()) as slow:
        slow.sendall(HEAD.format(100).encode() + b"{")
        told = _rest(slow)
    assert told.startswith(b"HTTP/1.1 408")
    assert b"not complete after 0.05 s" in told


def test_one_connection_too_many_is_dropped_and_the_others_stay(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    served = serve()
    served.client.close()
    kept = [httpx.Client(base_url=served.url, timeout=PATIENCE_S) for _ in range(3)]
    try:
        assert [client.get("/health").status_code for client in kept] == [200] * 3
        with _connected(served) as fourth:
            assert _rest(fourth) == b""
        assert [client.get("/health").status_code for client in kept] == [200] * 3
        kept.pop().close()
        with _connected(served) as next_one:
            next_one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"ready" in _rest(next_one)
    finally:
        for client in kept:
            client.close()


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_connection_that_does_not_say_what_it_wants_is_dropped(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, asked_before: bool
) -> None:
    monkeypatch.setattr(connections, "SILENT_S", 0.1)
    with _connected(serve()) as silent:
        if asked_before:
            silent.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = b""
            while b"ready" not in told:
                told += silent.recv(65536)
        silent.sendall(b"POST /v1/chat/comp")
        assert _rest(silent) == b""


def test_a_connection_that_says_nothing_is_dropped(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENT_S", 0.1)
    with _connected(serve()) as silent:
        assert _rest(silent) == b""


def test_a_connection_that_is_answered_is_not_silent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENT_S", 0.02)
    looked = threading.Semaphore(0)
    look = connections.BoundedProtocol._drop_if_silent

    def counted(self: connections.BoundedProtocol, was_silent: bool) -> None:
        look(self, was_silent)
        looked.release()

    monkeypatch.setattr(connections.BoundedProtocol, "_drop_if_silent", counted)
    model = FakeModel()
    model.decode_gate.close()
    served = serve(model)

    async def scenario() -> int:
        async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as http:
            body = {"messages": [{"role": "user", "content": "hi"}]}
            answer = asyncio.create_task(http.post(CHAT, json=body))
            await asyncio.to_thread(model.decode_gate.wait_for_arrival)
            for _ in range(10):
                assert await asyncio.to_thread(looked.acquire, timeout=PATIENCE_S)
            model.decode_gate.open()
            return (await answer).status_code

    assert asyncio.run(scenario()) == 200


def test_the_line_has_an_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_WAITING", 1)
    model = FakeModel()
    model.decode_gate.close()
    served = serve(model)
    first, second = (threading.Thread(target=served.chat) for _ in range(2))
    first.start()
    model.decode_gate.wait_for_arrival()
    second.start()
    served.wait_for_line(1)
    third = served.chat()
    assert (third.status_code, third.json()["error"]["code"]) == (503, "busy")
    assert int(third.headers["Retry-After"]) > 0
    model.decode_gate.open()
    first.join(PATIENCE_S)
    second.join(PATIENCE_S)
    assert served.chat().status_code == 200


def test_a_token_that_the_model_does_not_have_is_never_computed(serve: Serve) -> None:
    """On a GPU it would end the process."""
    model = FakeModel()
    model.vocab_size = max(model.tokenizer("<|user|>")["input_ids"])
    served = serve(model)
    response = served.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (400, "tokenizer")
    assert model.prompts == []


def test_a_very_long_stop_string_is_refused(serve: Serve) -> None:
    served = serve()
    assert served.chat(stop=["a" * MAX_STOP_CHARS]).status_code == 200
    refused = served.chat(stop=["b", "a" * (MAX_STOP_CHARS + 1)])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, None)
    assert "a stop string of 1,025 characters" in refused.json()["error"]["message"]


@pytest.mark.parametrize("has_parent", [True, False])
def test_a_line_without_an_end_on_the_pipe_is_not_collected(has_parent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else than the launcher is at the other end, such as a device that is never empty."""
    endless = io.BytesIO(b"\0" * (10 * MOST_COMMAND_BYTES))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=endless))
    read, write = os.pipe()
    engine = EngineProcess(write)
    try:
        engine._obey(has_parent)
    finally:
        os.close(read)
        os.close(write)
    assert endless.tell() == MOST_COMMAND_BYTES
    assert engine._end.is_set() is has_parent
