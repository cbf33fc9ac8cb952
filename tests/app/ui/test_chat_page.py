"""The Chat page as a person uses it: keys, buttons, what is shown, what is spoken, and what survives."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QGuiApplication, QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.chat.context_use import ContextUse
from app.chat.conversation import AnswerEnd, AnswerStats
from app.chat.store import ChatStore, ChatSummary
from app.core.session import ActiveRequest, EngineStage, SessionState
from app.link.stream import NO_ANSWER, ChatStream
from app.ui.pages.chat_list import by_day
from app.ui.pages.chat_page import ChatPage
from app.ui.theme import Theme
from app.ui.widgets.banner import Banner
from app.ui.widgets.empty_state import EmptyState
from app.ui.widgets.message_rows import AnswerRow, DividerRow, QuietRow, UserRow
from engine.contract.errors import Problem
from tests.app.link.chat_server import ChatServer, Exchange, answering, refusing
from tests.app.ui import samples
from tests.app.ui.markdown_samples import long_answer
from tests.support.tiny_plan import tiny_plan


@pytest.fixture
def server() -> Iterator[ChatServer]:
    running = ChatServer()
    yield running
    running.close()


@pytest.fixture
def store() -> Iterator[ChatStore]:
    made = ChatStore.in_memory()
    yield made
    made.close()


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    made = Theme(qapp, "light")
    yield made
    made.deleteLater()


@pytest.fixture
def page(qtbot: QtBot, theme: Theme, store: ChatStore) -> Iterator[ChatPage]:
    stream = ChatStream()
    made = ChatPage(theme, store, stream)
    made.resize(984, 800)
    made.show()
    qtbot.waitExposed(made)
    yield made
    stream.stop()
    made.hide()
    made.deleteLater()
    stream.deleteLater()


def ready(server: ChatServer, context_tokens: int = 512) -> SessionState:
    plan = tiny_plan(context_tokens=context_tokens)
    return SessionState(stage=EngineStage.READY, plan=plan, host="127.0.0.1", port=server.port)


def silent(exchange: Exchange) -> None:
    """An engine that is still reading the prompt."""
    exchange.go_on.wait(10)


def write(page: ChatPage, text: str) -> None:
    """Type a message and press Enter."""
    QTest.keyClicks(page.composer.edit, text)
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)


def rows(page: ChatPage) -> list[str]:
    """The message column in words."""
    said = []
    for row in page.column.list.rows:
        if isinstance(row, UserRow):
            said.append(f"You: {row.text.toPlainText()}")
        elif isinstance(row, AnswerRow):
            said.append(f"Model: {row.body.source}")
        elif isinstance(row, DividerRow):
            said.append("---")
    return said


def words(parent: QWidget, kind: type[QWidget]) -> list[str]:
    """Names of the visible widgets of a kind."""
    return [child.accessibleName() for child in parent.findChildren(kind) if child.isVisible()]


def spoken(widget: QWidget) -> str:
    """What a screen reader calls a widget."""
    return QAccessible.queryAccessibleInterface(widget).text(QAccessible.Text.Name)


def press(page: QWidget, label: str) -> None:
    (button,) = [b for b in page.findChildren(QPushButton) if b.text() == label and b.isVisible()]
    button.click()


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


def test_shift_enter_is_a_new_line_and_a_composing_input_method_keeps_enter(
    qtbot: QtBot, page: ChatPage, server: ChatServer
) -> None:
    edit = page.composer.edit
    QTest.keyClicks(edit, "one")
    QTest.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(edit, "two")
    assert page.composer.text == "one\ntwo"
    QApplication.sendEvent(edit, QInputMethodEvent("に", []))
    QTest.keyClick(edit, Qt.Key.Key_Return)
    assert page.flow.conversation is None, "Enter took a candidate and sent nothing"
    QApplication.sendEvent(edit, QInputMethodEvent())
    page.composer.set_text("  \n ")
    QTest.keyClick(edit, Qt.Key.Key_Return)
    assert page.flow.conversation is None, "blanks are no message"


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
    qtbot.waitUntil(lambda: "Writing · 3 tokens" in _line(answer), timeout=5000)
    assert page.composer.button.accessibleName() == "Stop"
    page.composer.edit.setFocus()
    with qtbot.waitSignal(page.flow.ended, timeout=5000):
        QTest.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert "stopped by you" in _line(answer)
    assert page.composer.button.accessibleName() == "Send"
    assert answer.body.source == "half an answer"


def test_before_the_first_token_the_line_tells_how_much_is_read(
    qtbot: QtBot, page: ChatPage, server: ChatServer
) -> None:
    server.script = silent
    state = ready(server)
    page.show_session(state)
    write(page, "question")
    page.show_session(replace(state, request=ActiveRequest("r", 28_900, 6_144)))
    assert _line(page.column.answers[0]) == "Reading prompt 6,144 of 28,900"


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


def test_what_is_typed_comes_back_with_its_chat_and_after_a_restart(
    qtbot: QtBot, theme: Theme, page: ChatPage, store: ChatStore
) -> None:
    write(page, "first chat")
    page.composer.set_text("unsent in the first")
    page.new_chat()
    assert page.composer.text == ""
    page.composer.set_text("unsent in a new one")
    page.chats.chosen.emit(store.chats()[0].id)
    assert page.composer.text == "unsent in the first"
    page.new_chat()
    page.composer.set_text("typed before the crash")
    page.hide()

    stream = ChatStream()
    again = ChatPage(theme, store, stream)
    qtbot.addWidget(again)
    assert again.composer.text == "typed before the crash"
    stream.deleteLater()


def test_the_list_opens_finds_renames_and_deletes_chats(qtbot: QtBot, page: ChatPage, store: ChatStore) -> None:
    first, second = store.start_chat("Regex for shards"), store.start_chat("Event ordering")
    page.new_chat()
    assert page.chats.model.rowCount() == 3, "a heading and two chats"
    page.chats.view.setCurrentIndex(page.chats.model.index_of(first.id))
    assert rows(page) == ["You: Regex for shards"]
    QTest.keyClicks(page.chats.search, "event")
    assert page.chats.model.index_of(second.id).isValid()
    assert not page.chats.model.index_of(first.id).isValid()
    page.chats.search.setText("nothing like it")
    assert page.chats.model.rowCount() == 0
    page.chats.search.clear()
    page.chats.model.setData(page.chats.model.index_of(first.id), "Shards")
    assert [chat.title for chat in store.chats()] == ["Event ordering", "Shards"]
    asked: list[str] = []

    def keep(title: str) -> bool:
        asked.append(title)
        return False

    page.may_delete = keep
    menu = page.chats.menu_for(page.chats.model.index_of(first.id))
    assert menu is not None
    menu.actions()[1].trigger()
    assert (asked, len(store.chats())) == (["Shards"], 2), "nothing is deleted without a yes"
    page.may_delete = lambda title: True
    menu.actions()[1].trigger()
    assert [chat.id for chat in store.chats()] == [second.id]
    assert rows(page) == []
    menu.deleteLater()


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


def test_every_widget_that_takes_the_keyboard_has_a_name(qtbot: QtBot, page: ChatPage, store: ChatStore) -> None:
    chat = store.start_chat("question")
    answer = store.begin_answer(chat.id)
    store.end_answer(answer.id, long_answer(1500), AnswerEnd.NORMAL, AnswerStats(answer_tokens=9))
    page.flow.open(chat.id)
    page.flow.send("waits")
    qtbot.waitUntil(lambda: len(words(page, Banner)) == 1, timeout=5000)
    focusable = [
        widget
        for widget in page.findChildren(QWidget)
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and widget.isVisible()
    ]
    assert len(focusable) > 12
    assert [type(widget).__name__ for widget in focusable if not spoken(widget)] == []
    assert "python code block" in {widget.accessibleName() for widget in page.findChildren(QWidget)}


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


def test_shortcuts_reach_search_and_input(qtbot: QtBot, page: ChatPage, store: ChatStore) -> None:
    page.flow.open(store.start_chat("old").id)
    page.activateWindow()
    page.composer.edit.setFocus()
    QTest.keyClick(page.composer.edit, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    assert page.chats.search.hasFocus()
    QTest.keyClick(page.chats.search, Qt.Key.Key_Escape, Qt.KeyboardModifier.ShiftModifier)
    assert page.composer.edit.hasFocus()
    page.chats.search.setFocus()
    page.setFocus()
    assert page.composer.edit.hasFocus(), "who comes to the page wants to write"


def test_a_click_on_a_chat_opens_it_and_one_can_write_at_once(qtbot: QtBot, page: ChatPage, store: ChatStore) -> None:
    chat = store.start_chat("old")
    page.flow.chats_changed.emit()
    page.activateWindow()
    view = page.chats.view
    place = view.visualRect(page.chats.model.index_of(chat.id)).center()
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert page.flow.chat_id == chat.id
    assert page.composer.edit.hasFocus()


def test_tab_goes_through_the_messages_before_the_input(qtbot: QtBot, page: ChatPage, store: ChatStore) -> None:
    chat = store.start_chat("A question.")
    answer = store.begin_answer(chat.id)
    store.end_answer(answer.id, "Some *prose*.\n\n```python\nprint(1)\n```\n", AnswerEnd.NORMAL, None)
    page.flow.open(chat.id)
    page.activateWindow()
    page.column.list.setFocus()
    passed: list[str] = []
    for _ in range(7):
        QTest.keyClick(page.window().focusWidget(), Qt.Key.Key_Tab)
        passed.append(page.window().focusWidget().accessibleName())
    messages = ["Your message", "Message text", "Copy python code", "python code block", "Copy message"]
    assert passed == [*messages, "Start engine", "Message"]


def test_chats_are_grouped_by_the_users_days() -> None:
    today = date(2026, 3, 2)
    noon = datetime(2026, 3, 2, 12).timestamp()
    ages = {"a": 0, "b": 11, "c": 24, "d": 300}
    chats = [ChatSummary(n, name, noon - h * 3600) for n, (name, h) in enumerate(ages.items())]
    shown = [row if isinstance(row, str) else row.title for row in by_day(chats, today)]
    assert shown == ["Today", "a", "b", "Yesterday", "c", "Earlier", "d"]
    assert by_day([], today) == []


def _line(answer: AnswerRow) -> str:
    return answer.line.text()
