"""What a page shows when it has nothing to show."""

import pytest
from PySide6.QtCore import QPoint
from pytestqt.qtbot import QtBot

from app.ui.theme import Theme
from app.ui.widgets.empty_state import EmptyState
from app.ui.widgets.label import Label

LONG = "The engine ended 14 s after loading: exit code 0xC0000005, access violation. Start again; if it happens again, "
LONG += "open the log and look at its last lines."


@pytest.mark.parametrize("width_px", [500, 730, 1200])
def test_a_long_text_wraps_inside_the_page_and_is_whole(width_px: int, qtbot: QtBot, theme: Theme) -> None:
    page = EmptyState(theme, "chat", "The engine stopped by an error", LONG, (("Start engine", "start", "primary"),))
    qtbot.addWidget(page)
    page.resize(width_px, 500)
    page.show()
    qtbot.waitExposed(page)
    assert page.width() == width_px
    [facts] = [label for label in page.findChildren(Label) if label.text() == LONG]
    left = facts.mapTo(page, QPoint(0, 0)).x()
    assert left > 0
    assert abs(left - (page.width() - left - facts.width())) <= 1, "in the middle"
    assert facts.height() >= facts.heightForWidth(facts.width())
