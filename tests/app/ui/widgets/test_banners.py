"""Banners whose numbers change while somebody reads them."""

from dataclasses import replace
from functools import partial

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QPlainTextEdit, QPushButton
from pytestqt.qtbot import QtBot

from app.ui.notices import Action, Notice
from app.ui.theme import Theme
from app.ui.widgets.banner import Banner
from app.ui.widgets.banner_stack import BannerStack
from app.ui.widgets.focus import focusable
from app.ui.widgets.label import Label

SHORT = Notice(
    "error",
    "This split needs 100.3 GiB of RAM; 20.8 GiB can be used",
    "Close other programs: 61.0 GiB by game.exe.",
    (Action("Check again", "check", "primary"), Action("Allow pageable layers", "allow")),
    "needed_bytes: 107,700,000,000",
    dismissable=False,
    about="ram",
)
OTHER_NUMBERS = replace(
    SHORT,
    title="This split needs 100.3 GiB of RAM; 1,021.1 GiB can be used",
    text="Close other programs: 58.0 GiB by game.exe.",
    details="needed_bytes: 107,600,000,000",
)


@pytest.fixture
def stack(qtbot: QtBot, theme: Theme) -> BannerStack:
    made = BannerStack(theme)
    made.resize(900, 200)
    qtbot.addWidget(made)
    made.show_notices((SHORT,))
    made.show()
    qtbot.waitExposed(made)
    return made


def shown(stack: BannerStack) -> list[Notice]:
    return [banner.notice for banner in stack.banners]


def button(banner: Banner, text: str) -> QPushButton:
    return next(one for one in banner.findChildren(QPushButton) if one.text() == text)


def test_other_numbers_are_said_by_the_banner_on_screen_and_not_announced_as_news(stack: BannerStack) -> None:
    banner = stack.banners[0]
    stack.show_notices((OTHER_NUMBERS,))
    assert stack.banners == (banner,)
    assert banner.notice == OTHER_NUMBERS
    assert banner.accessibleName() == OTHER_NUMBERS.title
    assert banner.accessibleDescription() == OTHER_NUMBERS.text


def test_other_numbers_leave_the_keyboard_and_open_details_where_they_are(stack: BannerStack, qtbot: QtBot) -> None:
    banner = stack.banners[0]
    button(banner, "Details").click()
    button(banner, "Allow pageable layers").setFocus()
    stack.show_notices((OTHER_NUMBERS,))
    assert button(banner, "Allow pageable layers").hasFocus()
    details = banner.findChild(QPlainTextEdit)
    assert details is not None
    assert details.isVisible()
    assert details.toPlainText() == OTHER_NUMBERS.details
    with qtbot.waitSignal(stack.acted) as acted:
        button(banner, "Allow pageable layers").click()
    assert acted.args == [OTHER_NUMBERS, "allow"]


def test_tab_goes_through_the_buttons_as_they_stand(stack: BannerStack) -> None:
    texts = [one.text() for one in focusable(stack.banners[0]) if isinstance(one, QPushButton)]
    assert texts == ["Check again", "Allow pageable layers", "Details", "Copy"]


@pytest.mark.parametrize(
    "news",
    [
        replace(SHORT, title="This split needs 100.3 GiB of VRAM; 20.8 GiB can be used"),
        replace(SHORT, severity="warn"),
        replace(SHORT, actions=SHORT.actions[:1]),
        replace(SHORT, about="commit_limit"),
    ],
)
def test_what_says_something_else_or_has_other_buttons_is_another_banner(stack: BannerStack, news: Notice) -> None:
    banner = stack.banners[0]
    stack.show_notices((news,))
    assert stack.banners != (banner,)
    assert shown(stack) == [news]


def test_a_dismissed_warning_does_not_come_back_with_another_number(stack: BannerStack) -> None:
    held = Notice("warn", "An engine process still holds memory", "It holds 28.9 GiB of RAM.", about="18244")
    stack.show_notices((held,))
    stack.banners[0].acted.emit("dismiss")
    stack.show_notices((replace(held, text="It holds 29.1 GiB of RAM."),))
    assert shown(stack) == []
    another = replace(held, about="5")
    stack.show_notices((held, another))
    assert shown(stack) == [another]


def test_buttons_stand_below_the_words_where_beside_would_leave_a_narrow_column(
    stack: BannerStack, qtbot: QtBot
) -> None:
    long = replace(SHORT, text=" ".join([SHORT.text] * 6))
    stack.show_notices((long,))
    banner = stack.banners[0]
    words = next(label for label in banner.findChildren(Label) if label.text() == long.text)
    act = button(banner, "Check again")

    def stands(below: bool) -> bool:
        return (act.mapTo(banner, QPoint(0, 0)).y() >= words.geometry().bottom()) is below

    for width, below in ((1000, False), (600, True), (1000, False)):
        stack.resize(width, 400)
        qtbot.waitUntil(partial(stands, below))
        act.setFocus()
    assert act.hasFocus()
