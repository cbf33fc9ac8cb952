"""The stream client against a real HTTP server: text, ends, refusals, hang-ups and silence."""

import json
from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.link.stream import STOPPED, ChatResult, ChatStream
from engine.contract.errors import Problem
from tests.app.link.chat_server import ChatServer, Exchange


@pytest.fixture
def stream(qtbot: QtBot) -> Iterator[ChatStream]:
    made = ChatStream()
    yield made
    made.stop()
    made.deleteLater()


HELLO = [{"role": "user", "content": "hello"}]


def finish(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> tuple[str, ChatResult]:
    pieces: list[str] = []
    stream.delta.connect(pieces.append)
    with qtbot.waitSignal(stream.finished, timeout=5000) as ended:
        stream.send(server.api_base, HELLO, model="tiny")
    assert ended.args is not None
    return "".join(pieces), ended.args[0]


def fail(qtbot: QtBot, stream: ChatStream, api_base: str) -> Problem:
    with qtbot.waitSignal(stream.failed, timeout=5000) as ended:
        stream.send(api_base, HELLO)
    assert ended.args is not None
    problem = ended.args[0]
    assert isinstance(problem, Problem)
    assert not stream.busy
    return problem


def test_an_answer_arrives_piece_by_piece_with_the_engines_numbers(
    qtbot: QtBot, stream: ChatStream, server: ChatServer
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.write(b": waiting\n\n")
        for piece in ("Grüße", " 🙂", " done"):
            exchange.text(piece)
        timings = {"ttft_s": 0.5, "prefill_tok_s": 100.0, "decode_tok_s": 9.5}
        exchange.end(timings=timings)
        exchange.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}, "timings": timings})
        exchange.write(b"data: [DONE]\n\n")

    server.script = script
    text, result = finish(qtbot, stream, server)
    assert text == "Grüße 🙂 done"
    assert (result.finish_reason, result.text_events) == ("stop", 3)
    assert result.stats is not None
    assert (result.stats.prompt_tokens, result.stats.answer_tokens, result.stats.decode_tok_s) == (7, 3, 9.5)
    asked = server.requests.get(timeout=5)
    assert asked.path == "/v1/chat/completions"
    assert asked.body == {
        "messages": HELLO,
        "stream": True,
        "stream_options": {"include_usage": True},
        "model": "tiny",
    }


def test_a_character_cut_between_two_packets_is_whole(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> None:
    event = b'data: {"choices":[{"delta":{"content":"a\xe6\xbc\xa2b"},"finish_reason":"stop"}]}\n\n'

    def script(exchange: Exchange) -> None:
        exchange.start()
        for byte in event:
            exchange.write(bytes([byte]))
        exchange.write(b"data: [DONE]\n\n")

    server.script = script
    assert finish(qtbot, stream, server)[0] == "a漢b"


def test_stop_ends_at_once_and_the_server_sees_it(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        while not exchange.go_on.wait(0.005):
            exchange.text("word ")

    server.script = script
    with qtbot.waitSignal(stream.delta, timeout=5000):
        stream.send(server.api_base, HELLO)
    results: list[ChatResult] = []
    failures: list[Problem] = []
    stream.finished.connect(results.append)
    stream.failed.connect(failures.append)
    stream.stop()
    assert [result.finish_reason for result in results] == [STOPPED]
    assert not stream.busy
    assert server.broken.get(timeout=5) in ("BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError")
    assert failures == []


def test_stopping_from_inside_a_delta_is_safe(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        for number in range(50):
            exchange.text(f"{number} ")
        exchange.end()
        exchange.write(b"data: [DONE]\n\n")

    server.script = script
    pieces: list[str] = []
    stream.delta.connect(pieces.append)
    stream.delta.connect(lambda _: stream.stop())
    with qtbot.waitSignal(stream.finished, timeout=5000) as ended:
        stream.send(server.api_base, HELLO)
    assert ended.args is not None
    assert ended.args[0].finish_reason == STOPPED
    assert pieces == ["0 "]


def test_a_refusal_keeps_the_engines_code_and_sentence(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start(400, "application/json")
        message = "The prompt has 34120 tokens; the KV cache holds 33792."
        exchange.write(json.dumps({"error": {"message": message, "code": "context_length_exceeded"}}).encode())

    server.script = script
    problem = fail(qtbot, stream, server.api_base)
    assert problem.kind == "context_length_exceeded"
    assert "33792" in problem.sentence


def test_an_error_inside_the_stream_ends_it(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.text("half")
        exchange.event({"error": {"message": "The KV cache is gone.", "type": "server_error", "code": "engine"}})

    server.script = script
    pieces: list[str] = []
    stream.delta.connect(pieces.append)
    problem = fail(qtbot, stream, server.api_base)
    assert (pieces, problem.kind, problem.sentence) == (["half"], "engine", "The KV cache is gone.")


def test_an_engine_that_dies_in_the_middle_is_told_from_a_whole_answer(
    qtbot: QtBot, stream: ChatStream, server: ChatServer
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.text("half an ans")

    server.script = script
    problem = fail(qtbot, stream, server.api_base)
    assert problem.kind == "connection_closed"
    assert problem.numbers == {"tokens": 1}


def test_an_engine_that_forgets_done_still_gave_a_whole_answer(
    qtbot: QtBot, stream: ChatStream, server: ChatServer
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.text("whole")
        exchange.end("length")

    server.script = script
    text, result = finish(qtbot, stream, server)
    assert (text, result.finish_reason) == ("whole", "length")


def test_nobody_listening_is_said_in_words(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> None:
    free = ChatServer()
    address = free.api_base
    free.close()
    assert fail(qtbot, stream, address).kind == "connection"


def test_a_page_that_is_no_stream_is_refused(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start(200, "text/html")
        exchange.write(b"<html>hello</html>")

    server.script = script
    assert fail(qtbot, stream, server.api_base).kind == "wire"


def test_an_event_that_is_no_json_is_refused(qtbot: QtBot, stream: ChatStream, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.write(b"data: {oops\n\n")
        exchange.go_on.wait(5)

    server.script = script
    assert fail(qtbot, stream, server.api_base).kind == "wire"


def test_silence_is_given_up_and_a_sign_of_life_waits_on(qtbot: QtBot, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.go_on.wait(5)

    server.script = script
    quick = ChatStream(watchdog_ms=50)
    problem = fail(qtbot, quick, server.api_base)
    assert (problem.kind, problem.sentence) == ("no_answer", "The engine has not answered for 0.05 seconds.")
    quick.deleteLater()

    patient = ChatStream()
    patient.still_alive()
    assert not patient.busy, "a sign of life without a request starts nothing"
    patient.deleteLater()


def test_the_next_request_starts_clean_and_two_at_once_are_refused(
    qtbot: QtBot, stream: ChatStream, server: ChatServer
) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.text("answer")
        exchange.end()
        exchange.write(b"data: [DONE]\n\n")

    server.script = script
    for _ in range(2):
        text, result = finish(qtbot, stream, server)
        assert text.startswith("answer")
        assert result.text_events == 1
        stream.delta.disconnect()
    stream.send(server.api_base, HELLO)
    with pytest.raises(RuntimeError):
        stream.send(server.api_base, HELLO)
    stream.stop()
