"""Icons are files, tinted when drawn."""

import pytest
from PySide6.QtGui import QColor, QIcon
from PySide6.QtWidgets import QApplication

from app.ui import icons

NAMES = sorted(file.stem for file in icons.FOLDER.glob("*.svg"))


def test_there_are_icons() -> None:
    assert {"split", "chat", "pin", "warn", "error", "play", "stop"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_icon_draws_in_the_colour_it_is_given(name: str, qapp: QApplication) -> None:
    image = icons.pixmap(name, "#FF0000", 20, 2.0).toImage()
    assert image.width() == 40
    inked = [image.pixelColor(x, y) for x in range(40) for y in range(40) if image.pixelColor(x, y).alpha() > 200]
    assert len(inked) >= 10, "nothing was drawn"
    assert all(colour.red() > 200 and colour.green() < 60 for colour in inked)


def test_the_disabled_state_has_its_own_tint(qapp: QApplication) -> None:
    icon = icons.icon("stop", "#FF0000", 16, "#00FF00")
    middle = icon.pixmap(16, QIcon.Mode.Disabled).toImage().pixelColor(8, 8)
    assert middle == QColor("#00FF00")


def test_every_icon_can_be_tinted_and_names_no_colour_of_its_own() -> None:
    for file in icons.FOLDER.glob("*.svg"):
        text = file.read_text("utf-8")
        assert "currentColor" in text
        assert "#" not in text
