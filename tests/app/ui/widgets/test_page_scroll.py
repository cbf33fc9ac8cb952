"""Cards on a page that is longer than the window."""

from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.ui.theme import Theme
from app.ui.widgets.page_scroll import PageScroll


def test_cards_keep_their_place_and_width_when_the_scroll_bar_comes_and_goes(qtbot: QtBot, theme: Theme) -> None:
    page = PageScroll("Split")
    qtbot.addWidget(page)
    page.resize(900, 300)
    card, banner = QWidget(), QWidget()
    card.setFixedHeight(200)
    banner.setFixedHeight(120)
    banner.hide()
    page.column.addWidget(banner)
    page.column.addWidget(card)
    page.column.addStretch()
    page.show()
    qtbot.waitExposed(page)
    left, width = card.x(), card.width()
    banner.show()
    qtbot.waitUntil(lambda: page.verticalScrollBar().isVisible() and card.width() == width)
    assert card.x() == left
    banner.hide()
    qtbot.waitUntil(lambda: not page.verticalScrollBar().isVisible() and card.width() == width)
    assert card.x() == left
