"""Results go away by themselves once they are read, out of date, or old."""

from pytestqt.qtbot import QtBot

from app.ui import reports
from app.ui.notices import Notice
from app.ui.reports import Reports

BACK = Notice("ok", "The engine stopped. 3.0 GiB of RAM came back", about="back")
NOT_BACK = Notice("warn", "The engine is gone, but its memory is not back", about="back")
UNSAVED = Notice("warn", "The settings could not be saved", about="settings")


def test_good_news_goes_by_itself_and_warnings_stay(qtbot: QtBot) -> None:
    told = Reports()
    told._timer.setInterval(1)
    told.add(UNSAVED)
    with qtbot.waitSignal(told.changed):
        told.add(BACK)
    assert list(told.notices) == [UNSAVED, BACK]
    with qtbot.waitSignal(told.changed):
        pass
    assert list(told.notices) == [UNSAVED]
    assert reports.SHOWN_MS >= 10_000, "long enough to be read"


def test_what_was_true_of_a_moment_is_over_with_the_next_start_or_stop() -> None:
    told = Reports()
    for notice in (NOT_BACK, UNSAVED):
        told.add(notice)
    told.drop_outdated()
    assert list(told.notices) == [UNSAVED]
    told.dismiss(UNSAVED)
    assert list(told.notices) == []


def test_a_newer_result_replaces_the_one_before() -> None:
    told = Reports()
    told.add(NOT_BACK)
    told.add(BACK)
    assert told.notices == (BACK,)
    told.close()
