"""Work off the UI thread, answers on it."""

import threading

import pytest
from pytestqt.qtbot import QtBot

from app.link.background import Background
from engine.contract.errors import SplitpinError, UsageError


def test_the_result_arrives_on_the_ui_thread_from_another_one(qtbot: QtBot) -> None:
    background = Background()
    got: list[tuple[int, int]] = []
    background.run(threading.get_ident, lambda ran: got.append((ran, threading.get_ident())), _fail)
    assert background.busy
    qtbot.waitUntil(lambda: bool(got))
    ((ran_on, delivered_on),) = got
    assert ran_on != delivered_on == threading.get_ident()
    assert not background.busy
    assert background.close()


def test_a_known_error_arrives_as_it_is_and_an_unknown_one_in_a_sentence(
    qtbot: QtBot, caplog: pytest.LogCaptureFixture
) -> None:
    background = Background()
    errors: list[SplitpinError] = []

    def known() -> None:
        raise UsageError("That is no folder.", "Choose a folder.")

    def unknown() -> None:
        raise ZeroDivisionError("division by zero")

    background.run(known, _fail, errors.append)
    qtbot.waitUntil(lambda: len(errors) == 1)
    background.run(unknown, _fail, errors.append)
    qtbot.waitUntil(lambda: len(errors) == 2)
    assert [error.kind for error in errors] == ["usage", "unexpected"]
    assert "division by zero" in errors[1].sentence
    assert "ZeroDivisionError" in caplog.text
    assert background.close()


def test_closing_waits_for_what_runs_and_drops_its_answer(qtbot: QtBot) -> None:
    background = Background(threads=1)
    running, go_on = threading.Event(), threading.Event()
    finished: list[str] = []

    def work() -> None:
        running.set()
        go_on.wait(10)
        finished.append("first")

    background.run(work, _fail, _fail)
    background.run(lambda: finished.append("never started"), _fail, _fail)
    assert running.wait(10)
    assert not background.close(timeout_ms=1)
    go_on.set()
    assert background.close()
    assert finished == ["first"]
    background.run(lambda: finished.append("after the end"), _fail, _fail)
    assert not background.busy


def _fail(value: object) -> None:
    pytest.fail(f"unexpected: {value}")
