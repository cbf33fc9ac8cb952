"""The strip of layers."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.ui.split_strip import strip
from app.ui.theme import Theme
from app.ui.tokens import DARK
from app.ui.widgets.layer_strip import LayerStrip, describe
from engine.contract.plan import Tier
from tests.app.ui import samples


@pytest.fixture
def shown(qtbot: QtBot, theme: Theme) -> LayerStrip:
    made = LayerStrip(theme)
    made.resize(930, 70)
    qtbot.addWidget(made)
    made.show_view(strip(samples.stopped()))
    made.show()
    qtbot.waitExposed(made)
    return made


def colour_in(shown: LayerStrip, index: int, share: float = 0.25) -> QColor:
    """The colour in the upper part of a cell, left of its middle, where no texture is."""
    box = shown.cell_rect(index)
    return shown.grab().toImage().pixelColor(round(box.left() + 3), round(box.top() + box.height() * share))


def test_a_cell_has_the_colour_of_its_tier(shown: LayerStrip) -> None:
    assert colour_in(shown, 0) == QColor(DARK.vram)
    assert colour_in(shown, 20) == QColor(DARK.pinned)


def test_tiers_differ_by_texture_alone(shown: LayerStrip) -> None:
    """Seen in grey: how much the brightness varies inside a cell."""
    image = shown.grab().toImage()

    def shades(index: int) -> int:
        box = shown.cell_rect(index).toRect().adjusted(2, 2, -2, -2)
        greys = [
            image.pixelColor(x, y).lightness()
            for x in range(box.left(), box.right())
            for y in range(box.top(), box.bottom())
        ]
        return len({grey // 16 for grey in greys})

    assert shades(0) == 1, "VRAM is plain"
    assert shades(20) > 1, "pinned has a dot"
    assert shades(60) > 1, "locked is hatched"


def test_the_description_counts_the_tiers(shown: LayerStrip) -> None:
    assert shown.accessibleName() == "Layer residency"
    assert shown.accessibleDescription() == "8 layers VRAM, 50 layers Pinned RAM, 4 layers Locked RAM"


def test_arrow_keys_walk_the_cells_and_speak_each_one(shown: LayerStrip) -> None:
    shown.setFocus()
    QTest.keyClick(shown, Qt.Key.Key_Right)
    assert shown.accessibleDescription() == "Layer 0: in VRAM, no copy needed, 1.90 GiB"
    for _ in range(8):
        QTest.keyClick(shown, Qt.Key.Key_Right)
    assert shown.accessibleDescription() == "Layer 8: pinned RAM, the GPU reads it over PCIe, 1.90 GiB"
    QTest.keyClick(shown, Qt.Key.Key_Left)
    assert shown.current == 7


def test_the_walk_ends_at_the_ends(shown: LayerStrip) -> None:
    shown.setFocus()
    QTest.keyClick(shown, Qt.Key.Key_Left)
    assert shown.current == 0
    for _ in range(100):
        QTest.keyClick(shown, Qt.Key.Key_Right)
    assert shown.current == 61


def test_a_layer_that_fell_says_what_was_asked_and_why() -> None:
    cell = strip(samples.settled()).cells[55]
    assert describe(cell) == (
        "Layer 55: locked RAM, computed on the CPU, 1.90 GiB. Asked for Pinned RAM. The driver refused to pin "
        "more than 89.2 GiB."
    )


def test_a_cell_fills_from_its_foot_while_its_layer_is_read(shown: LayerStrip) -> None:
    shown.show_view(strip(samples.loading(35)))
    assert colour_in(shown, 35, 0.25) == QColor(DARK.free)
    assert colour_in(shown, 35, 0.75) == QColor(DARK.pinned)
    assert colour_in(shown, 34, 0.25) == QColor(DARK.pinned)
    assert colour_in(shown, 36, 0.75) == QColor(DARK.free)


def test_the_texture_of_a_tier_fills_with_its_cell(shown: LayerStrip) -> None:
    shown.show_view(strip(samples.loading(59)))
    assert shown.shown.cells[59].tier is Tier.LOCKED
    image, box = shown.grab().toImage(), shown.cell_rect(59).toRect().adjusted(3, 3, -3, -20)
    empty = {
        image.pixelColor(x, y).name() for x in range(box.left(), box.right()) for y in range(box.top(), box.bottom())
    }
    assert empty == {QColor(DARK.free).name()}


def test_asked_stands_above_settled_and_changed_cells_are_outlined(shown: LayerStrip, qtbot: QtBot) -> None:
    low = shown.sizeHint().height()
    shown.show_view(strip(samples.settled()))
    assert shown.sizeHint().height() > low
    box = shown.cell_rect(55)
    middle, outline = round(box.center().x()), round(box.top()) - 1
    qtbot.waitUntil(lambda: colour_in(shown, 55) != QColor(DARK.pinned))
    assert shown.grab().toImage().pixelColor(middle, outline) == QColor(DARK.text)
    assert shown.grab().toImage().pixelColor(middle, 5) == QColor(DARK.pinned)


def test_fewer_layers_than_before_do_not_leave_a_cell_behind(shown: LayerStrip) -> None:
    shown.setFocus()
    for _ in range(40):
        QTest.keyClick(shown, Qt.Key.Key_Right)
    shown.show_view(strip(samples.no_gpu()))
    assert shown.current is None
    assert shown.accessibleDescription() == "30 layers Locked RAM"


def test_the_menu_of_a_layer_is_asked_for_by_mouse_and_by_key(shown: LayerStrip, qtbot: QtBot) -> None:
    from PySide6.QtGui import QContextMenuEvent

    wanted: list[int] = []
    shown.menu_wanted.connect(lambda layer, _: wanted.append(layer))
    spot = shown.cell_rect(12).center().toPoint()
    shown.contextMenuEvent(QContextMenuEvent(QContextMenuEvent.Reason.Mouse, spot, shown.mapToGlobal(spot)))
    shown.setFocus()
    QTest.keyClick(shown, Qt.Key.Key_Right)
    shown.contextMenuEvent(QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, QPoint(0, 0), QPoint(0, 0)))
    assert wanted == [12, 0]


def test_a_forced_layer_carries_a_mark(shown: LayerStrip) -> None:
    from dataclasses import replace

    from app.planning.wishes import Wishes

    inputs = replace(samples.stopped(), wishes=Wishes(forced={20: Tier.PINNED}))
    shown.show_view(strip(inputs))
    box = shown.cell_rect(20)
    corner = shown.grab().toImage().pixelColor(round(box.right()) - 2, round(box.top()) + 1)
    assert corner.lightness() > 180
    assert "Tier chosen by you" in describe(strip(inputs).cells[20])
