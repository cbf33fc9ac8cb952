"""The checks of tests/conftest.py find what they are made for."""

import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QCoreApplication, QThread, QTimer
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from tests.support import leaks
from tests.support.leaks import ThreadLeakCheck
from tests.support.qt_leaks import QtLeakCheck


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_GRACE_S", 0.0)


@pytest.fixture
def waiting_thread() -> Iterator[threading.Thread]:
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait, name="left-over")
    yield thread
    may_end.set()
    thread.join()


@pytest.mark.usefixtures("short_grace")
def test_a_thread_that_goes_on_is_named(waiting_thread: threading.Thread) -> None:
    check = ThreadLeakCheck()
    check.begin()
    waiting_thread.start()
    assert check.end() == ["thread 'left-over': end and join it"]


def test_a_thread_that_was_there_before_is_not_the_tests_fault(waiting_thread: threading.Thread) -> None:
    waiting_thread.start()
    check = ThreadLeakCheck()
    check.begin()
    assert check.end() == []


def test_an_active_timer_is_found_with_the_place_it_was_started_at(qapp: QCoreApplication) -> None:
    check = QtLeakCheck()
    check.begin()
    timer = QTimer()
    timer.start(60_000)
    (line,) = check.end()
    timer.stop()
    assert line.startswith("QTimer started at") and "test_harness.py" in line


def test_a_stopped_timer_is_fine(qapp: QCoreApplication) -> None:
    check = QtLeakCheck()
    check.begin()
    timer = QTimer()
    timer.start(60_000)
    timer.stop()
    assert check.end() == []


def test_a_running_qthread_is_found(qapp: QCoreApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.qt_leaks._THREAD_GRACE_MS", 0)
    check = QtLeakCheck()
    check.begin()
    thread = QThread()
    thread.start()
    (line,) = check.end()
    thread.quit()
    assert thread.wait(5000)
    assert line.startswith("QThread started at")


def test_a_window_nobody_owns_is_found(qtbot: QtBot) -> None:
    check = QtLeakCheck()
    check.begin()
    window = QWidget()
    window.setObjectName("orphan")
    (line,) = check.end()
    window.deleteLater()
    assert "QWidget 'orphan'" in line


def test_a_window_that_went_away_is_fine(qtbot: QtBot) -> None:
    check = QtLeakCheck()
    check.begin()
    window = QWidget()
    window.close()
    window.deleteLater()
    del window
    assert check.end() == []
