"""The tray icon and its pictures."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from app.ui import tray_glyph
from app.ui.theme import Theme
from app.ui.tray import Tray
from app.ui.tray_view import Glyph, TrayInputs, tray
from engine.contract.plan import Tier
from tests.app.ui import samples
from tests.app.ui.samples import GLYPHS

# The platform without a screen has no tray to speak to and cannot raise windows.
pytestmark = pytest.mark.qt_log_ignore("systemTrayWindowChanged", "does not support raise", "propagateSizeHints")


def image(glyph: Glyph, px: int, *, dark: bool = True) -> QImage:
    return tray_glyph.pixmap(glyph, px, dark_taskbar=dark).toImage()


@pytest.mark.parametrize("px", tray_glyph.SIZES_PX)
@pytest.mark.parametrize("dark", [True, False])
def test_states_look_different_at_every_size_on_both_taskbars(qtbot: QtBot, px: int, dark: bool) -> None:
    pictures = [image(glyph, px, dark=dark) for glyph in GLYPHS.values()]
    assert all(picture.width() == px for picture in pictures)
    for place, one in enumerate(pictures):
        for other in pictures[place + 1 :]:
            differing = sum(one.pixel(x, y) != other.pixel(x, y) for x in range(px) for y in range(px))
            assert differing >= px, "too little to be told apart"


def near(one: QColor, other: str) -> bool:
    wanted = QColor(other)
    return sum(abs(a - b) for a, b in zip(one.getRgb(), wanted.getRgb(), strict=True)) < 60  # type: ignore[call-overload]


def test_the_arcs_run_clockwise_from_the_top_by_bytes(qtbot: QtBot) -> None:
    picture = image(GLYPHS["ready"], 32)
    assert near(picture.pixelColor(20, 5), "#5C97FF"), "VRAM begins at the top"
    assert near(picture.pixelColor(16, 27), "#49DDA9"), "most of it is pinned"
    assert near(picture.pixelColor(13, 5), "#F2B52E"), "locked ends at the top"
    assert near(picture.pixelColor(16, 16), "#FFFFFF"), "a dot in the middle: ready"


def test_one_tier_is_a_closed_ring(qtbot: QtBot) -> None:
    picture = image(Glyph("ready", ((Tier.LOCKED, 30),)), 32)
    for spot in ((16, 4), (27, 16), (16, 27), (4, 16)):
        assert near(picture.pixelColor(*spot), "#F2B52E")


def test_loading_grows_clockwise(qtbot: QtBot) -> None:
    def bright(share: float) -> int:
        picture = image(Glyph("loading", share=share), 32)
        return sum(picture.pixelColor(x, y).alpha() > 200 for x in range(32) for y in range(32))

    assert bright(0.1) < bright(0.5) < bright(0.9)


def test_the_menu_follows_the_state_and_says_what_was_chosen(qtbot: QtBot, theme: Theme) -> None:
    icon = Tray(theme, is_available=lambda: False)
    icon.show_view(tray(TrayInputs(samples.ready().session, "MiniMax-M2.5")))
    actions = {action.text(): action for action in icon.menu.actions() if action.text()}
    assert not actions["Ready · MiniMax-M2.5"].isEnabled()
    with qtbot.waitSignal(icon.acted) as acted:
        actions["Stop engine"].trigger()
    assert acted.args == ["stop"]
    icon.show_view(tray(TrayInputs(samples.stopped().session, "MiniMax-M2.5")))
    assert "Stop engine" not in [action.text() for action in icon.menu.actions()]
    icon.close()


def test_without_a_tray_the_icon_is_never_taken_as_a_hiding_place(qtbot: QtBot, theme: Theme) -> None:
    icon = Tray(theme, is_available=lambda: False)
    icon.begin()
    assert not icon.available
    icon.close()


def test_a_tray_that_comes_late_is_used(qtbot: QtBot, theme: Theme, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.ui import tray as module

    monkeypatch.setattr(module, "RETRY_MS", 1)
    there = [False]
    icon = Tray(theme, is_available=lambda: there[0])
    icon.begin()
    there[0] = True
    qtbot.waitUntil(lambda: icon.available)
    icon.close()


def test_the_system_decides_when_the_icon_is_clicked(qtbot: QtBot, theme: Theme) -> None:
    from PySide6.QtWidgets import QSystemTrayIcon

    icon = Tray(theme, is_available=lambda: False)
    heard: list[bool] = []
    icon.toggled.connect(lambda: heard.append(True))
    reason = QSystemTrayIcon.ActivationReason
    found = icon.findChild(QSystemTrayIcon, options=Qt.FindChildOption.FindDirectChildrenOnly)
    assert found is not None
    found.activated.emit(reason.Context)
    assert heard == []
    found.activated.emit(reason.Trigger)
    assert heard == [True]
    icon.close()


def test_the_icon_follows_the_taskbar_and_where_nobody_tells_the_window(qtbot: QtBot, theme: Theme) -> None:
    told: list[bool | None] = [True]
    icon = Tray(theme, is_available=lambda: False, has_dark_taskbar=lambda: told[0])
    icon.show_view(tray(TrayInputs(samples.stopped().session)))

    def ink() -> QColor:
        return icon.shown_icon.pixmap(32, 32).toImage().pixelColor(16, 5)

    assert ink().lightness() > 200, "white on a dark taskbar"
    told[0] = False
    icon.follow_taskbar()
    assert ink().lightness() < 60
    told[0] = None
    theme.choose("dark")
    icon.follow_taskbar()
    assert ink().lightness() > 200
    icon.close()
