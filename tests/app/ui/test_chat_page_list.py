"""The list of chats on the Chat page: opening, finding, renaming, and what was typed into each."""

from datetime import date, datetime
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.chat.store import ChatStore, ChatSummary
from app.link.stream import ChatStream
from app.ui.pages.chat_list import by_day
from app.ui.pages.chat_page import ChatPage
from app.ui.theme import Theme
from tests.app.ui.chat_kit import rows, write


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
    menu.actions()[2].trigger()
    assert (asked, len(store.chats())) == (["Shards"], 2), "nothing is deleted without a yes"
    page.may_delete = lambda title: True
    menu.actions()[2].trigger()
    assert [chat.id for chat in store.chats()] == [second.id]
    assert rows(page) == []
    menu.deleteLater()


def test_a_click_on_a_chat_opens_it_and_one_can_write_at_once(qtbot: QtBot, page: ChatPage, store: ChatStore) -> None:
    chat = store.start_chat("old")
    page.flow.chats_changed.emit()
    page.activateWindow()
    view = page.chats.view
    place = view.visualRect(page.chats.model.index_of(chat.id)).center()
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert page.flow.chat_id == chat.id
    assert page.composer.edit.hasFocus()


def test_chats_are_grouped_by_the_users_days() -> None:
    today = date(2026, 3, 2)
    noon = datetime(2026, 3, 2, 12).timestamp()
    ages = {"a": 0, "b": 11, "c": 24, "d": 300}
    chats = [ChatSummary(n, name, noon - h * 3600) for n, (name, h) in enumerate(ages.items())]
    shown = [row if isinstance(row, str) else row.title for row in by_day(chats, today)]
    assert shown == ["Today", "a", "b", "Yesterday", "c", "Earlier", "d"]
    assert by_day([], today) == []


def test_a_chat_is_saved_as_markdown_from_its_menu_and_by_the_keyboard(
    page: ChatPage, store: ChatStore, tmp_path: Path
) -> None:
    chat = store.start_chat("What is 2 + 2?")
    page.flow.open(chat.id)
    page.flow.chats_changed.emit()
    named: list[str] = []

    def pick(name: str) -> Path:
        named.append(name)
        return tmp_path / f"{len(named)}.md"

    page.pick_file = pick
    menu = page.chats.menu_for(page.chats.model.index_of(chat.id))
    assert menu is not None
    menu.actions()[1].trigger()
    page.composer.edit.setFocus()
    both = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    QTest.keyClick(page.composer.edit, Qt.Key.Key_E, both)
    assert named == ["What is 2 + 2.md"] * 2
    assert (tmp_path / "2.md").read_text("utf-8").startswith("# What is 2 + 2?")
    page.pick_file = lambda _: tmp_path / "missing" / "a.md"
    menu.actions()[1].trigger()
    assert page.flow.problem is not None and page.flow.problem.kind == "chat_export"
    menu.deleteLater()
