"""A question to the user."""

from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.ui.question import Question
from app.ui.theme import Theme

ANSWERS = (("delete", "Delete chat", "danger"), ("keep", "Keep", "primary"))


def asked(theme: Theme) -> Question:
    return Question(theme, "Delete “<b>x</b>”?", "It cannot be brought back.", ANSWERS, default="keep")


def test_enter_gives_the_harmless_answer(qtbot: QtBot, theme: Theme) -> None:
    question = asked(theme)
    QTimer.singleShot(0, lambda: QTest.keyClick(question, Qt.Key.Key_Return))
    assert question.ask() == "keep"


def test_escape_answers_nothing_and_a_button_what_it_says(qtbot: QtBot, theme: Theme) -> None:
    question = asked(theme)
    QTimer.singleShot(0, lambda: QTest.keyClick(question, Qt.Key.Key_Escape))
    assert question.ask() is None
    question = asked(theme)
    (button,) = [button for button in question.findChildren(QPushButton) if button.text() == "Delete chat"]
    QTimer.singleShot(0, button.click)
    assert question.ask() == "delete"
