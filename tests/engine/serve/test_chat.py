"""POST /v1/chat/completions over real HTTP."""

import json
from typing import Any

import pytest

from engine.contract.events import RequestDone
from engine.generate.detokenize import REPLACEMENT
from tests.engine.serve.conftest import Serve, Served
from tests.support.fake_model import NO_SYSTEM_TEMPLATE, STRICT_TEMPLATE, FakeModel

USER = {"role": "user", "content": "one"}


def chunks(served: Served, **fields: Any) -> list[Any]:
    """The data of a stream, parsed; the last one is "[DONE]"."""
    body = {"messages": [USER], "temperature": 0, "stream": True, **fields}
    with served.client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) if line != "[DONE]" else line for line in lines]


def ask(served: Served, messages: list[Any], **fields: Any) -> Any:
    response = served.client.post("/v1/chat/completions", json={"messages": messages, "temperature": 0, **fields})
    return response.status_code, response.json()


def test_an_answer_without_a_stream_has_text_usage_and_timings(serve: Serve) -> None:
    response = serve().chat()
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Paris."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    prompt = len("hi") + 3  # the template's markers
    assert body["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 6,
        "total_tokens": prompt + 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert set(body["timings"]) == {"ttft_s", "prefill_tok_s", "decode_tok_s"}
    assert all(value > 0 for value in body["timings"].values())


def test_the_usage_of_a_second_turn_says_how_much_of_its_prompt_was_cached(serve: Serve) -> None:
    served = serve(FakeModel(reuses=True))
    first = {"role": "user", "content": "hi"}
    ask(served, [first])
    turns = [first, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "and?"}]
    _, body = ask(served, turns)
    before = len("hi") + 3 + len("Paris.")  # up to the token that ended the answer
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": before}


def test_a_stream_begins_with_the_role_and_ends_with_reason_usage_and_done(serve: Serve) -> None:
    got = chunks(serve(), stream_options={"include_usage": True})
    first, *middle, last, usage, done = got
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle) == "Paris."
    assert [chunk["choices"][0]["finish_reason"] for chunk in [first, *middle]] == [None] * (1 + len(middle))
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 6
    assert usage["timings"]["ttft_s"] > 0
    assert done == "[DONE]"
    assert len({chunk["id"] for chunk in got[:-1]}) == 1
    assert {chunk["object"] for chunk in got[:-1]} == {"chat.completion.chunk"}


def test_a_stream_without_include_usage_has_no_usage_but_timings_in_its_last_chunk(serve: Serve) -> None:
    *_, last, done = chunks(serve())
    assert done == "[DONE]"
    assert "usage" not in last
    assert set(last["timings"]) == {"ttft_s", "prefill_tok_s", "decode_tok_s"}


def test_t21_characters_outside_ascii_arrive_whole_in_a_stream(serve: Serve) -> None:
    served = serve(FakeModel(answers=["🍎 你好"]))
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks(served)[:-1]]
    assert "".join(pieces) == "🍎 你好"
    assert not any(REPLACEMENT in piece for piece in pieces)


def test_both_names_of_the_answer_limit_work_and_the_newer_one_wins(serve: Serve) -> None:
    served = serve(FakeModel(answers=["abcdefgh"]))
    assert served.chat(max_tokens=2).json()["choices"][0]["message"]["content"] == "ab"
    assert served.chat(max_completion_tokens=3, max_tokens=1).json()["choices"][0]["finish_reason"] == "length"
    assert served.chat(max_completion_tokens=3, max_tokens=1).json()["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("stop", ["THE", ["never", "THE"]])
def test_stop_strings_end_the_answer(serve: Serve, stop: object) -> None:
    body = serve(FakeModel(answers=["go THE END"])).chat(stop=stop).json()
    assert body["choices"][0]["message"]["content"] == "go "
    assert body["choices"][0]["finish_reason"] == "stop"


def test_the_seed_decides_the_answer_where_the_temperature_does_not(serve: Serve) -> None:
    served = serve(FakeModel(answers=["abc"], generation_defaults={"temperature": 1e4, "top_p": 1.0, "top_k": 0}))

    def text(seed: int) -> str:
        body = served.chat(temperature=None, seed=seed, max_tokens=12).json()
        return str(body["choices"][0]["message"]["content"])

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_the_models_own_sampling_counts_where_the_request_names_none(serve: Serve) -> None:
    served = serve(FakeModel(answers=["abc"], generation_defaults={"temperature": 1e6, "top_k": 1}))
    assert served.chat(temperature=None).json()["choices"][0]["message"]["content"] == "abc"


def test_content_may_be_a_list_of_text_parts_and_unknown_fields_are_ignored(serve: Serve) -> None:
    served = serve()
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two", "cache_control": {}}]
    status, _ = ask(served, [{"role": "user", "content": parts, "name": "x"}], store=True, logit_bias={"1": 2})
    assert status == 200
    assert served.model.prompts == ["<|user|>one two<|end|><|assistant|>"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, {"content": "x"}]}, "messages.1.role"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"stop": ""}, None),
    ],
)
def test_a_request_that_makes_no_sense_is_400_and_names_the_field(serve: Serve, fields: Any, param: str | None) -> None:
    served = serve()
    response = served.client.post("/v1/chat/completions", json={"messages": [USER], **fields})
    error = response.json()["error"]
    assert response.status_code == 400
    assert set(error) == {"message", "type", "code", "param"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"]
    assert not served.model.prompts


def test_a_body_that_is_not_json_is_400(serve: Serve) -> None:
    response = serve().client.post("/v1/chat/completions", content=b"{nope")
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_t22_user_turns_in_a_row_are_joined_with_a_blank_line(serve: Serve) -> None:
    served = serve(FakeModel(chat_template=STRICT_TEMPLATE))
    answer = {"role": "assistant", "content": "three"}
    status, _ = ask(served, [USER, {"role": "user", "content": "two"}, answer, {"role": "user", "content": "four"}])
    assert status == 200
    expected = "<|user|>one\n\ntwo<|end|><|assistant|>three<|end|><|user|>four<|end|><|assistant|>"
    assert served.model.prompts == [expected]


def test_t22_later_system_text_goes_into_the_user_turn_that_follows(serve: Serve) -> None:
    served = serve(FakeModel(chat_template=STRICT_TEMPLATE))
    status, _ = ask(
        served,
        [
            {"role": "system", "content": "rules"},
            USER,
            {"role": "assistant", "content": "yes"},
            {"role": "system", "content": "more rules"},
            {"role": "user", "content": "two"},
        ],
    )
    assert status == 200
    assert served.model.prompts == [
        "<|system|>rules<|end|><|user|>one<|end|><|assistant|>yes<|end|><|user|>more rules\n\ntwo<|end|><|assistant|>"
    ]


def test_t22_system_between_two_user_turns_makes_one_user_turn(serve: Serve) -> None:
    served = serve(FakeModel(chat_template=STRICT_TEMPLATE))
    system = {"role": "system", "content": "rules"}
    late = {"role": "developer", "content": "late"}
    status, _ = ask(served, [system, USER, late, {"role": "user", "content": "two"}])
    assert status == 200
    assert served.model.prompts == ["<|system|>rules<|end|><|user|>one\n\nlate\n\ntwo<|end|><|assistant|>"]


def test_t22_a_conversation_the_template_refuses_is_400_and_names_role_and_place(serve: Serve) -> None:
    served = serve(FakeModel(chat_template=STRICT_TEMPLATE))
    status, body = ask(served, [{"role": "assistant", "content": "hello"}, USER])
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["param"] == "messages[0].role"
    assert "messages[0] with role 'assistant'" in body["error"]["message"]
    assert "must alternate" in body["error"]["message"]


def test_t22_a_template_without_a_system_role_gets_the_text_in_the_first_user_turn(serve: Serve) -> None:
    served = serve(FakeModel(chat_template=NO_SYSTEM_TEMPLATE))
    status, _ = ask(served, [{"role": "system", "content": "rules"}, USER])
    assert status == 200
    assert served.model.prompts == ["<|user|>rules\n\none<|end|><|assistant|>"]


@pytest.mark.parametrize("template", [None, "{{ messages[0].nothing.at_all }}", "{% broken"])
def test_t22_a_missing_or_broken_template_is_400_too(serve: Serve, template: str | None) -> None:
    status, body = ask(serve(FakeModel(chat_template=template)), [USER])
    assert status == 400
    assert "template" in body["error"]["message"]


def test_messages_that_render_to_nothing_are_400(serve: Serve) -> None:
    status, body = ask(serve(FakeModel(chat_template="{{ messages[0].content }}")), [{"role": "user", "content": ""}])
    assert status == 400
    assert "empty prompt" in body["error"]["message"]


def prompt_of(tokens: int) -> str:
    return "x" * (tokens - 3)  # one token a letter, three for the template


def test_t23_a_prompt_longer_than_the_pool_is_400_with_both_numbers_even_while_another_answer_runs(
    serve: Serve,
) -> None:
    served = serve(FakeModel(context_tokens=8209))
    served.model.decode_gate.close()
    with served.client.stream(
        "POST", "/v1/chat/completions", json={"messages": [USER], "temperature": 0, "stream": True}
    ):
        served.wait_for("request_started")
        response = served.chat(prompt_of(21661))
        assert not served.seen("request_done")  # refused without waiting for its turn
        served.model.decode_gate.open()
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    assert "21661" in error["message"]
    assert "8209" in error["message"]
    assert error["numbers"] == {"prompt_tokens": 21661, "context_tokens": 8209}
    assert error["sentence"] + " " + error["fix"] == error["message"]


@pytest.mark.parametrize("fields", [{"max_tokens": 1000}, {}])
def test_t23_an_answer_gets_the_rest_of_the_pool_and_ends_with_length(serve: Serve, fields: Any) -> None:
    served = serve(FakeModel(answers=["y" * 500], context_tokens=8209))
    body = served.chat(prompt_of(8000), **fields).json()
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (8000, 209)
    assert body["choices"][0]["finish_reason"] == "length"
    assert len(body["choices"][0]["message"]["content"]) == 209


def test_a_failure_in_one_request_is_500_with_a_sentence_and_the_next_one_works(serve: Serve) -> None:
    errors: list[Exception | None] = [MemoryError("no room for 3 GiB"), ValueError("odd\nsecond line"), None]
    served = serve(FakeModel(fail_prefill=lambda: errors.pop(0)))
    first, second, third = served.chat(), served.chat(), served.chat()
    assert (first.status_code, second.status_code, third.status_code) == (500, 500, 200)
    assert first.json()["error"]["code"] in ("ram", "commit"), "as this system keeps to a commit limit or not"
    assert first.json()["error"]["type"] == "server_error"
    assert "ran out while answering" in first.json()["error"]["message"]
    assert "odd" in second.json()["error"]["message"]
    assert "second line" not in second.json()["error"]["message"]
    reasons = [event.finish_reason for event in served.seen("request_done") if isinstance(event, RequestDone)]
    assert reasons == ["error", "error", "stop"]


def test_a_failure_before_the_first_token_of_a_stream_is_500(serve: Serve) -> None:
    served = serve(FakeModel(fail_prefill=lambda: RuntimeError("broken")))
    response = served.chat(stream=True)
    assert response.status_code == 500
    assert "broken" in response.json()["error"]["message"]


def test_a_failure_after_the_first_token_of_a_stream_ends_it_with_an_error_event(serve: Serve) -> None:
    *pieces, last = chunks(serve(FakeModel(answers=["abcdef"], fail_decode_after=2)))
    assert "".join(piece["choices"][0]["delta"]["content"] for piece in pieces) == "abc"
    assert set(last) == {"error"}
    assert last["error"]["type"] == "server_error"
    assert "scripted failure while decoding" in last["error"]["message"]


def test_a_stream_that_waits_long_begins_and_sends_comments(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.serve.http.FIRST_PIECE_S", 0.01)
    monkeypatch.setattr("engine.serve.http.SILENCE_S", 0.01)
    served = serve()
    served.model.prefill_gate.close()
    body = {"messages": [USER], "temperature": 0, "stream": True}
    with served.client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if line)
        assert json.loads(first.removeprefix("data: "))["choices"][0]["delta"]["role"] == "assistant"
        assert next(line for line in lines if line) == ": waiting"
        served.model.prefill_gate.open()
        assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_body_longer_than_any_conversation_is_not_read_to_its_end(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()
    monkeypatch.setattr("engine.serve.bodies.MOST_BYTES", 1000)
    refused = served.chat("x" * 2000)
    assert refused.status_code == 413
    assert "1,000 B" in refused.json()["error"]["message"]
    assert served.chat("x" * 200).status_code == 200


def test_what_any_client_sends_without_need_is_no_error(serve: Serve) -> None:
    fields = {"logprobs": False, "response_format": {"type": "text"}, "tool_choice": "auto", "tools": [], "user": "me"}
    assert serve().chat("hi", **fields).status_code == 200


@pytest.mark.parametrize(
    "template",
    ["{{ 1 / 0 }}", "{% for i in range(9999999) %}{% endfor %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"],
)
def test_whatever_a_template_stumbles_over_is_an_error_of_the_template(serve: Serve, template: str) -> None:
    response = serve(FakeModel(chat_template=template)).chat("hi")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "chat_template"
