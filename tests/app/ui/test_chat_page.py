"""The Chat page as a person uses it: questions and answers, what is shown, and what survives."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPushButton
from pytestqt.qtbot import QtBot

from app.chat.context_use import ContextUse
from app.chat.conversation import AnswerEnd
from app.chat.store import ChatStore
from app.core.session import ActiveRequest, EngineStage, SessionState
from app.link.stream import NO_ANSWER
from app.ui.pages.chat_page import ChatPage
from app.ui.theme import Theme
from app.ui.widgets.banner import Banner
from app.ui.widgets.empty_state import EmptyState
from app.ui.widgets.message_rows import QuietRow, UserRow
from engine.contract.errors import Problem
from tests.app.link.chat_server import ChatServer, answering, refusing
from tests.app.ui import samples
from tests.app.ui.chat_kit import line, press, ready, rows, silent, words, write
from tests.app.ui.markdown_samples import long_answer


def test_a_question_typed_with_enter_is_answered_below(qtbot: QtBot, page: ChatPage, server: ChatServer) -> None:
    server.script = answering("**Pa", "ris**")
    page.show_session(ready(server))
    with qtbot.waitSignal(page.flow.ended, timeout=5000):
        write(page, "Capital of France?")
    assert rows(page) == ["You: Capital of France?", "Model: **Paris**"]
    (answer,) = page.column.answers
    assert answer.accessibleName() == "tiny replied"
    assert answer.accessibleDescription() == "2 tokens · 9.5 tok/s · first token 0.5 s · prompt 7"
    assert page.composer.text == ""
    assert page.composer.meter.text == "Context 9 of 512 tokens"
    page.column.copy_last_answer()
    assert QGuiApplication.clipboard().text() == "**Paris**"


def test_without_an_engine_the_page_says_so_and_keeps_the_message(
    qtbot: QtBot, page: ChatPage, server: ChatServer
) -> None:
    assert page.findChildren(EmptyState)[-1].isVisible()
    with qtbot.waitSignal(page.start_requested):
        press(page, "Start engine")
    write(page, "Are you there?")
    assert rows(page) == ["You: Are you there?"]
    assert words(page, Banner) == ["The engine is stopped"]
    quiet = page.findChildren(QuietRow)[0]
    assert quiet.isVisible()
    with qtbot.waitSignal(page.start_requested):
        press(page, "Start engine")
    server.script = answering("yes")
    with qtbot.waitSignal(page.flow.ended, timeout=5000):
        page.show_session(ready(server))
    assert rows(page) == ["You: Are you there?", "Model: yes"]
    assert words(page, Banner) == []
    assert not quiet.isVisible()


def test_a_waiting_message_can_be_taken_back(qtbot: QtBot, page: ChatPage) -> None:
    write(page, "Not yet")
    QTest.keyClicks(page.composer.edit, "more")
    press(page, "Take back")
    assert page.composer.text == "Not yet\n\nmore"
    assert rows(page) == []
    assert page.flow.conversation is None


def test_while_writing_the_line_below_counts_and_esc_stops(qtbot: QtBot, page: ChatPage, server: ChatServer) -> None:
    server.script = answering("half ", "an ", "answer", wait=True)
    state = ready(server)
    page.show_session(state)
    write(page, "question")
    page.show_session(replace(state, request=ActiveRequest("r", 28_900, 6_144)))
    answer = page.column.answers[0]
    qtbot.waitUntil(lambda: page.flow.answer_so_far == "half an answer", timeout=5000)
    qtbot.waitUntil(lambda: "Writing · 3 tokens" in line(answer), timeout=5000)
    assert page.composer.button.accessibleName() == "Stop"
    page.composer.edit.setFocus()
    with qtbot.waitSignal(page.flow.ended, timeout=5000):
        QTest.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert line(answer).startswith("Stopped by you · ")
    assert page.composer.button.accessibleName() == "Send"
    assert answer.body.source == "half an answer"


def test_with_the_first_words_the_line_below_no_longer_waits(qtbot: QtBot, page: ChatPage, server: ChatServer) -> None:
    server.script = answering("Paris", wait=True)
    page.show_session(ready(server))
    with qtbot.waitSignal(page.flow.delta, timeout=5000):
        write(page, "question")
    assert line(page.column.answers[0]) == "Writing · 1 token"


def test_before_the_first_token_the_line_tells_how_much_is_read(
    qtbot: QtBot, page: ChatPage, server: ChatServer
) -> None:
    server.script = silent
    state = ready(server)
    page.show_session(state)
    write(page, "question")
    page.show_session(replace(state, request=ActiveRequest("r", 28_900, 6_144)))
    assert line(page.column.answers[0]) == "Reading prompt 6,144 of 28,900"


def test_enter_while_an_answer_is_written_keeps_the_typed_text(
    qtbot: QtBot, page: ChatPage, server: ChatServer
) -> None:
    server.script = answering("half", wait=True)
    page.show_session(ready(server))
    write(page, "first")
    qtbot.waitUntil(lambda: page.flow.answer_so_far == "half", timeout=5000)
    write(page, "second")
    assert page.composer.text == "second"


def test_a_refusal_is_a_row_with_the_smallest_cure(qtbot: QtBot, page: ChatPage, server: ChatServer) -> None:
    server.script = answering("word " * 300)
    page.show_session(ready(server))
    with qtbot.waitSignal(page.flow.ended, timeout=5000):
        write(page, "tell me")
    numbers = {"prompt_tokens": 600, "context_tokens": 512}
    server.script = refusing(400, "context_length_exceeded", "Too long.", numbers=numbers)
    with qtbot.waitSignal(page.flow.removed, timeout=5000):
        write(page, "and more")
    qtbot.waitUntil(lambda: len(words(page, Banner)) == 1, timeout=5000)
    (banner,) = [child for child in page.findChildren(Banner) if child.isVisible()]
    assert banner.notice.title == "This message does not fit"
    assert banner.notice.text == "It needs 600 tokens with its history; the KV cache holds 512."
    server.script = answering("fine")
    with qtbot.waitSignal(page.flow.ended, timeout=5000):
        press(page, "Leave out the 2 oldest messages")
    assert rows(page)[-3:] == ["---", "You: and more", "Model: fine"]
    assert words(page, Banner) == []


def test_the_view_follows_only_a_reader_at_the_end(
    qtbot: QtBot, theme: Theme, page: ChatPage, store: ChatStore
) -> None:
    chat = store.start_chat("long")
    answer = store.begin_answer(chat.id)
    store.end_answer(answer.id, long_answer(8000), AnswerEnd.NORMAL, None)
    page.flow.open(chat.id)
    bar = page.column.list.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 1000 and bar.value() == bar.maximum())
    bar.setValue(200)
    assert page.column.list.jump.isVisible()
    before = bar.maximum()
    page.column.list.add(UserRow(theme, chat.messages[0]))
    qtbot.waitUntil(lambda: bar.maximum() > before)
    assert bar.value() == 200, "reading on is not disturbed"
    page.column.list.jump.click()
    assert bar.value() == bar.maximum()
    assert not page.column.list.jump.isVisible()


def test_a_long_chat_is_built_in_parts(qtbot: QtBot, page: ChatPage, store: ChatStore) -> None:
    chat = store.start_chat("message 0")
    for number in range(1, 100):
        store.add_user_message(chat.id, f"message {number}")
    page.flow.open(chat.id)
    assert rows(page) == [f"You: message {number}" for number in range(60, 100)]
    press(page, "Show earlier messages")
    assert rows(page)[0] == "You: message 20"
    press(page, "Show earlier messages")
    assert rows(page) == [f"You: message {number}" for number in range(100)]
    assert "Show earlier messages" not in words(page, QPushButton)


@pytest.mark.parametrize(
    ("tokens", "tint", "text"),
    [
        (400, "text2", "Context 400 of 512 tokens"),
        (436, "warn", "Context 436 of 512 tokens"),
        (512, "error", "Context 512 of 512 tokens: does not fit"),
    ],
)
def test_the_meter_warns_in_colour_and_words(page: ChatPage, theme: Theme, tokens: int, tint: str, text: str) -> None:
    meter = page.composer.meter
    meter.show_use(ContextUse(tokens, about=False), 512)
    assert meter.text == text
    assert meter.tint == getattr(theme.tokens, tint)
    assert meter.accessibleName().startswith(f"Context {tokens} of 512 tokens used")


def test_typed_text_counts_about(qtbot: QtBot, page: ChatPage, server: ChatServer) -> None:
    page.show_session(ready(server))
    page.composer.set_text("x" * 400)
    assert page.composer.meter.text == "Context about 104 of 512 tokens"
    page.composer.set_text("x" * 4000)
    assert page.composer.meter.is_over


def test_an_engine_that_fell_silent_can_be_ended_from_the_chat(qtbot: QtBot, page: ChatPage, store: ChatStore) -> None:
    page.note_log("prefill 1/2")
    page.flow.open(store.start_chat("Are you there?").id)
    problem = Problem(kind=NO_ANSWER, sentence="The engine has not answered for 120 seconds.", fix="Send it again.")
    page.show_session(SessionState(stage=EngineStage.READY))
    page.flow._answer_failed(page.flow.chat_id or 0, problem)
    with qtbot.waitSignal(page.end_requested):
        press(page, "End engine")
    assert page.flow.problem is None


def test_a_message_is_as_high_as_it_needs_to_be_however_much_room_there_is(
    qtbot: QtBot, page: ChatPage, store: ChatStore
) -> None:
    chat = store.start_chat("Square?")
    answer = store.begin_answer(chat.id)
    store.end_answer(answer.id, "```python\nx ** 2\n```\n\nThat is it.", AnswerEnd.NORMAL, None)
    page.resize(1000, 900)
    page.flow.open(chat.id)
    (row,) = page.column.answers
    qtbot.waitUntil(lambda: row.height() > 0)
    assert row.height() == row.sizeHint().height()


def test_an_empty_page_says_why_the_engine_failed(page: ChatPage) -> None:
    page.show_session(samples.crashed().session)
    said = [label.text() for label in page.findChildren(EmptyState)[-1].findChildren(QLabel)]
    assert any("access violation" in text for text in said)
