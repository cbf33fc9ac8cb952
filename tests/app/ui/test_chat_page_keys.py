"""The Chat page by keyboard and screen reader."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.chat.conversation import AnswerEnd, AnswerStats
from app.chat.store import ChatStore
from app.ui.pages.chat_page import ChatPage
from app.ui.widgets.banner import Banner
from tests.app.link.chat_server import ChatServer
from tests.app.ui.chat_kit import spoken, words
from tests.app.ui.markdown_samples import long_answer


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
