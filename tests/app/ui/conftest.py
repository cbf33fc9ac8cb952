"""What tests of the window share."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from app.ui.theme import Theme
from app.ui.window_memory import WindowMemory


@pytest.fixture
def theme(qapp: QApplication) -> Theme:
    """The dark theme, put on."""
    return Theme(qapp, "dark")


@pytest.fixture
def window_memory(tmp_path: Path) -> WindowMemory:
    return WindowMemory(tmp_path / "window.ini")
