"""What tests of the window share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.store import ChatStore
from app.link.stream import ChatStream
from app.ui.pages.chat_page import ChatPage
from app.ui.theme import Theme
from app.ui.window_memory import WindowMemory
from tests.support.hollow_model import hollow_mixtral


@pytest.fixture
def theme(qapp: QApplication) -> Theme:
    """The dark theme, put on."""
    return Theme(qapp, "dark")


@pytest.fixture
def window_memory(tmp_path: Path) -> WindowMemory:
    return WindowMemory(tmp_path / "window.ini")


@pytest.fixture
def store() -> Iterator[ChatStore]:
    """No chats yet."""
    made = ChatStore.in_memory()
    yield made
    made.close()


@pytest.fixture
def page(qtbot: QtBot, theme: Theme, store: ChatStore) -> Iterator[ChatPage]:
    """The Chat page on screen."""
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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder whose weights are holes."""
    return hollow_mixtral(tmp_path / "tiny-moe")
