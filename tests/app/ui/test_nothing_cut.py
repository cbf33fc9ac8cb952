"""Every state of the window in every size: no number and no button is cut off."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.ui.theme import Theme
from tests import gallery, gallery_chat

SIZES = {"usual": (1180, 800), "widest rail": (1000, 700), "narrow": (900, 800), "smallest": (880, 600)}


# Ends of lines that a tool tip has whole: beside a long name, and behind the reason why an answer ended.
GIVES_WAY = ("178.5 GiB in total", "prompt 1,204 (1,020 cached)")


def cut(window: QWidget) -> list[str]:
    """Texts that are wider than their place."""
    found = []
    for label in window.findChildren(QLabel):
        if label.isVisible() and not label.wordWrap():
            needed = QFontMetricsF(label.font()).horizontalAdvance(label.text())
            if needed > label.width() + 0.5:
                found.append(label.text())
    buttons = [one for one in window.findChildren(QPushButton) if one.isVisible() and one.text()]
    return found + [one.text() for one in buttons if one.width() < one.sizeHint().width() - 1]


@pytest.mark.parametrize("size", SIZES)
def test_no_text_is_cut_off(size: str, qapp: QApplication, qtbot: QtBot, theme: Theme, tmp_path: Path) -> None:
    found = {}
    for name, scene in gallery.scenes().items():
        window = gallery.build(theme, replace(scene, size=SIZES[size]), tmp_path)
        qtbot.addWidget(window)
        window.show()
        gallery.settle(qapp)
        if texts := [text for text in cut(window) if not text.endswith(GIVES_WAY)]:
            found[name] = texts
        window.hide()
    assert found == {}


@pytest.mark.parametrize("size", SIZES)
def test_no_text_of_the_chat_page_is_cut_off(size: str, qapp: QApplication, theme: Theme, tmp_path: Path) -> None:
    found = {}
    for name, scene in gallery_chat.scenes().items():
        with gallery_chat.shown(qapp, theme, replace(scene, size=SIZES[size]), tmp_path) as window:
            gallery.settle(qapp)
            if texts := [text for text in cut(window) if not text.endswith(GIVES_WAY)]:
                found[name] = texts
    assert found == {}
