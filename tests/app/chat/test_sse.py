"""Events are found wherever the network cuts the bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.chunks import problem_of, read_chunk
from app.chat.sse import SseParser

payloads = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), max_size=6)
line_ends = st.sampled_from(["\n", "\r\n", "\r"])


@given(payloads, line_ends, st.data())
def test_any_cut_of_the_bytes_gives_the_same_events(texts: list[str], end: str, data: st.DataObject) -> None:
    stream = "".join(f": waiting{end}{end}data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    parser = SseParser()
    found: list[str] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[start:stop])
    assert found == texts


def test_one_byte_at_a_time_keeps_characters_whole() -> None:
    parser = SseParser()
    found = [payload for byte in "data: é🙂漢\r\n\r\n".encode() for payload in parser.feed(bytes([byte]))]
    assert found == ["é🙂漢"]


def test_lines_of_data_are_joined_and_other_fields_dropped() -> None:
    parser = SseParser()
    assert parser.feed(b"id: 7\nevent: x\ndata: a\ndata:b\n\n: only a comment\n\ndata: c\n") == ["a\nb"]
    assert parser.waiting_bytes == len(b"data: c\n")


def test_bytes_that_are_not_utf8_are_replaced_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert SseParser().feed(b"data: a\xffb\n\n") == ["a\ufffdb"]
    assert "not UTF-8" in caplog.text


def test_a_chunk_says_text_end_and_numbers() -> None:
    assert read_chunk('{"choices":[{"delta":{"content":"hi"},"finish_reason":null}]}').text == "hi"
    assert read_chunk('{"choices":[{"delta":{},"finish_reason":"length"}]}').finish_reason == "length"
    body = {
        "choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
        "timings": {"ttft_s": 1, "prefill_tok_s": None, "decode_tok_s": 9.5},
    }
    stats = read_chunk(json.dumps(body)).stats
    assert stats is not None
    assert (stats.prompt_tokens, stats.answer_tokens, stats.cached_tokens) == (7, 3, 2)
    assert (stats.ttft_s, stats.prefill_tok_s, stats.decode_tok_s) == (1.0, None, 9.5)


@pytest.mark.parametrize(
    "odd", ['{"choices":null}', '{"choices":[null]}', '{"choices":[{"delta":{"content":5}}]}', '{"usage":"many"}', "{}"]
)
def test_an_odd_chunk_is_empty_not_an_exception(odd: str) -> None:
    chunk = read_chunk(odd)
    assert (chunk.text, chunk.finish_reason, chunk.problem) == ("", None, None)


@pytest.mark.parametrize("broken", ["", "[1]", "{", "null"])
def test_what_is_no_json_object_is_refused(broken: str) -> None:
    with pytest.raises(ValueError):
        read_chunk(broken)


def test_an_error_body_becomes_a_problem_of_its_code() -> None:
    body = {"error": {"message": "Too long.", "type": "invalid_request_error", "code": "context_length_exceeded"}}
    assert problem_of(body, 400).kind == "context_length_exceeded"
    assert problem_of(body, 400).sentence == "Too long."
    body["error"] |= {"sentence": "The prompt is long.", "fix": "Cut it.", "numbers": {"prompt_tokens": 9, "x": [1]}}  # type: ignore[dict-item]
    ours = problem_of(body, 400)
    assert (ours.sentence, ours.fix, ours.numbers) == ("The prompt is long.", "Cut it.", {"prompt_tokens": 9})
    assert problem_of({"error": {"message": "m", "type": "server_error", "code": None}}, 500).kind == "server_error"
    assert "502" in problem_of(None, 502).sentence
