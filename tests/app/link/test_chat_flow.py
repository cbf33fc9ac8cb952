"""Chats between disk and engine: what was sent waits, what was written stays, what failed is said."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.conversation import AnswerEnd, Role
from app.chat.store import ChatStore
from app.core.session import ActiveRequest, EngineStage, SessionState, SplitChange
from app.link.chat_flow import ChatFlow
from app.link.stream import ChatStream
from tests.app.link.chat_server import ChatServer, Exchange, answering, refusing
from tests.support.tiny_plan import tiny_plan


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    made = ChatStore.open(tmp_path / "chats.sqlite")
    yield made
    made.close()


@pytest.fixture
def flow(qtbot: QtBot, store: ChatStore) -> Iterator[ChatFlow]:
    stream = ChatStream()
    made = ChatFlow(store, stream)
    yield made
    stream.stop()
    made.deleteLater()
    stream.deleteLater()


def ready(server: ChatServer, context_tokens: int = 512) -> SessionState:
    plan = tiny_plan(context_tokens=context_tokens)
    return SessionState(stage=EngineStage.READY, plan=plan, host="127.0.0.1", port=server.port)


def silent(exchange: Exchange) -> None:
    """An engine that is still reading the prompt."""
    exchange.go_on.wait(10)


def texts(flow: ChatFlow) -> list[str]:
    assert flow.conversation is not None
    return [message.text for message in flow.conversation.messages]


def test_a_message_is_answered_and_both_are_on_disk(
    qtbot: QtBot, flow: ChatFlow, store: ChatStore, server: ChatServer
) -> None:
    server.script = answering("Pa", "ris")
    flow.show_session(ready(server))
    with qtbot.waitSignal(flow.ended, timeout=5000):
        assert flow.send("Capital of France?")
    assert texts(flow) == ["Capital of France?", "Paris"]
    (summary,) = flow.chats()
    loaded = store.load(summary.id)
    assert loaded is not None
    assert loaded == flow.conversation
    answer = loaded.messages[1]
    assert answer.end is AnswerEnd.NORMAL
    assert answer.stats is not None
    assert (answer.stats.answer_tokens, answer.stats.decode_tok_s, answer.stats.model) == (2, 9.5, "tiny")


def test_a_message_sent_while_the_engine_loads_is_kept_and_sent_when_it_is_ready(
    qtbot: QtBot, flow: ChatFlow, store: ChatStore, server: ChatServer
) -> None:
    server.script = answering("yes")
    flow.show_session(SessionState(stage=EngineStage.LOADING, plan=tiny_plan()))
    assert flow.send("Are you there?")
    assert flow.waiting
    assert flow.status == "Waits until the engine is ready"
    assert [chat.title for chat in store.chats()] == ["Are you there?"], "on disk before the engine saw it"
    assert not flow.send("And again"), "one message waits at a time; the second stays typed"
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.show_session(ready(server))
    assert texts(flow) == ["Are you there?", "yes"]


def test_the_history_is_sent_along(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    server.script = answering("one")
    flow.show_session(ready(server))
    for question in ("first", "second"):
        with qtbot.waitSignal(flow.ended, timeout=5000):
            flow.send(question)
    server.requests.get(timeout=5)
    assert server.requests.get(timeout=5).body["messages"] == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "second"},
    ]


def test_stop_keeps_what_was_written_and_says_who_stopped(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    server.script = answering("half ", "an answer", wait=True)
    flow.show_session(ready(server))
    flow.send("question")
    qtbot.waitUntil(lambda: flow.answer_so_far == "half an answer", timeout=5000)
    assert flow.status.startswith("Writing · 2 tokens")
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.stop()
    assert flow.conversation is not None
    answer = flow.conversation.messages[-1]
    assert (answer.text, answer.end) == ("half an answer", AnswerEnd.STOPPED_BY_USER)
    assert answer.stats is not None
    assert answer.stats.measured_by == "window"


def test_stopped_before_the_first_token_leaves_the_question_unanswered(
    qtbot: QtBot, flow: ChatFlow, server: ChatServer
) -> None:
    server.script = silent
    flow.show_session(ready(server))
    flow.send("question")
    qtbot.waitUntil(lambda: not server.requests.empty(), timeout=5000)
    flow.stop()
    assert texts(flow) == ["question"]
    assert (flow.writing, flow.waiting, flow.status) == (False, False, "")
    assert flow.take_back() == "question"
    assert flow.conversation is None
    assert flow.chats() == [], "a chat that has no message left is gone"


def test_prefill_is_told_from_the_engines_progress(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    server.script = silent
    state = ready(server)
    flow.show_session(state)
    flow.send("question")
    assert flow.status == "Waiting for the first token"
    flow.show_session(replace(state, request=ActiveRequest("r1", prompt_tokens=28_900, prefilled_tokens=6_144)))
    assert flow.status == "Reading prompt 6,144 of 28,900"
    flow.stop()


@pytest.mark.parametrize(("prompt_tokens", "end"), [(7, AnswerEnd.LENGTH), (510, AnswerEnd.CACHE_FULL)])
def test_a_length_limit_is_told_from_a_full_cache(
    qtbot: QtBot, flow: ChatFlow, server: ChatServer, prompt_tokens: int, end: AnswerEnd
) -> None:
    server.script = answering("a", "b", reason="length", prompt_tokens=prompt_tokens)
    flow.show_session(ready(server, context_tokens=512))
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.send("question")
    assert flow.conversation is not None
    assert flow.conversation.messages[-1].end is end


def test_an_answer_goes_on_while_another_chat_is_open(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    server.script = answering("first ", "answer", wait=True)
    flow.show_session(ready(server))
    flow.send("first question")
    first = flow.chat_id
    qtbot.waitUntil(lambda: bool(flow.answer_so_far), timeout=5000)
    flow.open(None)
    assert (flow.writing, flow.answer_so_far) == (False, "")
    flow.send("second question")
    second = flow.chat_id
    assert flow.status == "Waits until the answer in another chat is complete"
    with qtbot.waitSignal(flow.ended, timeout=5000):
        server.go_on.set()
    assert texts(flow) == ["second question", "first answer"], "the script answers both alike"
    flow.open(first)
    assert texts(flow) == ["first question", "first answer"]
    assert flow.chat_id != second


def test_a_dead_engine_keeps_the_part_and_names_the_problem(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.text("half")

    server.script = script
    flow.show_session(ready(server))
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.send("question")
    assert flow.problem is not None
    assert flow.problem.kind == "connection_closed"
    assert texts(flow) == ["question", "half"]
    flow.open(None)
    assert flow.problem is None, "a problem belongs to its chat"
    flow.open(flow.chats()[0].id)
    assert flow.problem is not None
    flow.dismiss_problem()
    assert flow.problem is None


def test_an_engine_that_failed_explains_the_broken_connection(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.text("half")

    server.script = script
    state = ready(server)
    flow.show_session(state)
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.send("question")
    assert flow.problem is not None
    flow.show_session(replace(state, stage=EngineStage.FAILED))
    assert flow.problem is None
    assert flow.conversation is not None
    assert flow.conversation.messages[-1].end is AnswerEnd.ERROR


def test_empty_lines_around_a_message_are_dropped_but_not_its_indent(flow: ChatFlow) -> None:
    assert flow.send("\n\n    if x:\n        y\n\n  ")
    assert texts(flow) == ["    if x:\n        y"]
    assert not flow.send(" \n ")


def test_stopping_the_engine_on_purpose_is_no_error(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    def script(exchange: Exchange) -> None:
        exchange.start()
        exchange.text("half")
        exchange.go_on.wait(10)

    server.script = script
    state = ready(server)
    flow.show_session(state)
    flow.send("question")
    qtbot.waitUntil(lambda: bool(flow.answer_so_far), timeout=5000)
    flow.show_session(replace(state, stage=EngineStage.STOPPING))
    with qtbot.waitSignal(flow.ended, timeout=5000):
        server.go_on.set()
    assert flow.problem is None
    assert flow.conversation is not None
    assert flow.conversation.messages[-1].end is AnswerEnd.INTERRUPTED


def test_a_refused_message_stays_and_can_be_sent_again(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    server.script = refusing(503, "loading", "The model is still loading.")
    flow.show_session(ready(server))
    with qtbot.waitSignal(flow.removed, timeout=5000):
        flow.send("question")
    assert flow.problem is not None
    assert flow.problem.kind == "loading"
    assert texts(flow) == ["question"]
    server.script = answering("answer")
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.answer_last()
    assert flow.problem is None
    assert texts(flow) == ["question", "answer"]


def test_a_chat_that_does_not_fit_goes_on_without_its_oldest_messages(
    qtbot: QtBot, flow: ChatFlow, store: ChatStore, server: ChatServer
) -> None:
    server.script = answering("a long answer " * 20)
    flow.show_session(ready(server, context_tokens=512))
    for question in ("one " * 100, "two " * 100):
        with qtbot.waitSignal(flow.ended, timeout=5000):
            flow.send(question)
    message = "The prompt has 600 tokens; the KV cache holds 512."
    server.script = refusing(400, "context_length_exceeded", message, numbers={"prompt_tokens": 600})
    with qtbot.waitSignal(flow.removed, timeout=5000):
        flow.send("three")
    assert flow.leave_out_count == 2
    server.script = answering("fits")
    while not server.requests.empty():
        server.requests.get()
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.leave_out_oldest()
    sent = server.requests.get(timeout=5).body["messages"]
    assert [turn["content"][:4] for turn in sent] == ["two ", "a lo", "thre"]
    assert len(texts(flow)) == 6, "nothing is removed from the chat"
    assert flow.chat_id is not None
    reopened = store.load(flow.chat_id)
    assert reopened is not None
    assert len(reopened.sent_messages) == 4, "what is left out stays left out"


def test_a_long_answer_is_on_disk_while_it_is_written(
    qtbot: QtBot, flow: ChatFlow, store: ChatStore, server: ChatServer
) -> None:
    server.script = answering("so ", "far", wait=True)
    flow.show_session(ready(server))
    flow.send("question")
    qtbot.waitUntil(lambda: flow.answer_so_far == "so far", timeout=5000)
    flow.save_now()
    assert flow.chat_id is not None
    on_disk = store.load(flow.chat_id)
    assert on_disk is not None
    assert (on_disk.messages[1].text, on_disk.messages[1].end) == ("so far", AnswerEnd.WRITING)
    flow.stop()


def test_a_disk_that_refuses_leaves_the_message_typed(flow: ChatFlow, store: ChatStore) -> None:
    store.close()
    assert not flow.send("precious")
    assert flow.problem is not None
    assert flow.problem.kind == "chat_store"
    assert flow.conversation is None


def test_deleting_a_chat_stops_its_answer(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    server.script = answering("so far", wait=True)
    flow.show_session(ready(server))
    flow.send("question")
    qtbot.waitUntil(lambda: bool(flow.answer_so_far), timeout=5000)
    assert flow.chat_id is not None
    flow.delete(flow.chat_id)
    assert flow.conversation is None
    assert flow.chats() == []
    server.script = answering("next")
    with qtbot.waitSignal(flow.ended, timeout=5000):
        assert flow.send("the engine is free again")


def test_roles_alternate_after_a_failed_answer(qtbot: QtBot, flow: ChatFlow, server: ChatServer) -> None:
    server.script = refusing(500, "server_error", "It broke.")
    flow.show_session(ready(server))
    with qtbot.waitSignal(flow.removed, timeout=5000):
        flow.send("first")
    server.script = answering("both")
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.send("second")
    server.requests.get(timeout=5)
    sent = server.requests.get(timeout=5).body["messages"]
    assert sent == [{"role": "user", "content": "first\n\nsecond"}]
    assert flow.conversation is not None
    assert [m.role for m in flow.conversation.messages] == [Role.USER, Role.USER, Role.ASSISTANT]


def test_a_message_waits_while_the_split_is_changed_and_is_sent_then(
    qtbot: QtBot, flow: ChatFlow, server: ChatServer
) -> None:
    server.script = answering("Pa", "ris")
    state = ready(server)
    assert state.plan is not None
    flow.show_session(replace(state, change=SplitChange(state.plan)))
    assert flow.send("Capital of France?")
    assert (flow.waiting, flow.status) == (True, "Waits for the new split")
    flow.show_session(replace(state, change=SplitChange(state.plan, restart=True)))
    assert flow.status == "Waits until the engine was started again"
    with qtbot.waitSignal(flow.ended, timeout=5000):
        flow.show_session(state)
    assert texts(flow) == ["Capital of France?", "Paris"]
