"""The gallery renders every state without a word from Qt."""

from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.ui.theme import Theme, ThemeChoice
from app.ui.widgets.label import ElidedLabel
from tests import gallery, gallery_tray

# The platform without a screen cannot raise menus.
pytestmark = pytest.mark.qt_log_ignore("does not support", "propagateSizeHints")
SCENES = gallery.scenes()


@pytest.mark.parametrize("choice", gallery.THEMES)
@pytest.mark.parametrize("name", SCENES)
def test_every_state_is_drawn_and_no_label_is_cut(
    name: str, choice: ThemeChoice, qtbot: QtBot, qapp: QApplication, tmp_path: Path
) -> None:
    window = gallery.build(Theme(qapp, choice), SCENES[name], tmp_path)
    qtbot.addWidget(window)
    window.show()
    gallery.settle(qapp)
    assert cut_labels(window) == []
    assert colours(window.grab().toImage()) > 5


def test_the_tray_is_drawn(qtbot: QtBot, qapp: QApplication) -> None:
    theme = Theme(qapp, "dark")
    assert colours(gallery_tray.glyph_sheet(theme).toImage()) > 5
    assert colours(gallery_tray.menu_sheet(qapp, theme, gallery.an_orphan()).toImage()) > 5


def cut_labels(window: QWidget) -> list[str]:
    """Texts that have less room than they need. Labels that elide say so by their class."""
    found = []
    for label in window.findChildren(QLabel):
        if not label.isVisible() or isinstance(label, ElidedLabel) or not label.text():
            continue
        needed = label.heightForWidth(label.width()) if label.wordWrap() else label.sizeHint().height()
        if label.height() < needed or (not label.wordWrap() and label.width() < label.sizeHint().width()):
            found.append(label.text())
    return found


def colours(image: QImage) -> int:
    return len({image.pixel(x, y) for x in range(0, image.width(), 7) for y in range(0, image.height(), 5)})
