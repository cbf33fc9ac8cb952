"""The slider with its limits."""

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QWheelEvent
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.ui.split_view import Marker
from app.ui.theme import Theme
from app.ui.tokens import LIGHT
from app.ui.widgets.split_slider import SplitSlider

PIN = Marker(4, "pin", "Pin quota full at 50 layers")
RAM = Marker(9, "ram", "RAM full at 59 layers")


@pytest.fixture
def slider(qtbot: QtBot, theme: Theme) -> SplitSlider:
    made = SplitSlider(theme)
    made.setRange(0, 11)
    made.resize(900, 54)
    qtbot.addWidget(made)
    made.show()
    qtbot.waitExposed(made)
    return made


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (Qt.Key.Key_Right, 6),
        (Qt.Key.Key_Left, 4),
        (Qt.Key.Key_PageUp, 9),
        (Qt.Key.Key_PageDown, 1),
        (Qt.Key.Key_Home, 0),
        (Qt.Key.Key_End, 11),
    ],
)
def test_keys_move_one_or_four_stops_or_to_an_end(slider: SplitSlider, key: Qt.Key, value: int) -> None:
    slider.setValue(5)
    QTest.keyClick(slider, key)
    assert slider.value() == value


def test_a_click_jumps_to_the_nearest_stop(slider: SplitSlider) -> None:
    spot = QPoint(round(slider.x_of(7)) + 5, 14)
    QTest.mouseClick(slider, Qt.MouseButton.LeftButton, pos=spot)
    assert slider.value() == 7
    assert not slider.isSliderDown()


def test_dragging_moves_the_value_along(slider: SplitSlider) -> None:
    seen: list[int] = []
    slider.valueChanged.connect(seen.append)
    QTest.mousePress(slider, Qt.MouseButton.LeftButton, pos=QPoint(round(slider.x_of(1)), 14))
    QTest.mouseMove(slider, QPoint(round(slider.x_of(3)), 14))
    QTest.mouseMove(slider, QPoint(899, 14))
    QTest.mouseRelease(slider, Qt.MouseButton.LeftButton)
    assert seen == [1, 3, 11]


def wheel(slider: SplitSlider) -> None:
    spot = QPointF(100, 14)
    event = QWheelEvent(
        spot,
        slider.mapToGlobal(spot),
        QPoint(0, 0),
        QPoint(0, 120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    slider.wheelEvent(event)


def test_the_wheel_scrolls_the_page_unless_the_slider_has_the_keyboard(slider: SplitSlider, qtbot: QtBot) -> None:
    slider.setValue(5)
    slider.clearFocus()
    wheel(slider)
    assert slider.value() == 5
    slider.setFocus()
    qtbot.waitUntil(slider.hasFocus)
    wheel(slider)
    assert slider.value() == 6, "one stop a notch"


def test_it_is_a_slider_to_a_screen_reader(slider: SplitSlider) -> None:
    slider.setAccessibleName("Context against VRAM layers")
    found = QAccessible.queryAccessibleInterface(slider)
    assert found.role() is QAccessible.Role.Slider
    assert found.text(QAccessible.Text.Name) == "Context against VRAM layers"
    values = found.valueInterface()
    assert values is not None
    assert (values.minimumValue(), values.maximumValue()) == (0, 11)


def test_labels_stay_inside_and_apart(slider: SplitSlider) -> None:
    for first, second in ((0, 1), (4, 9), (10, 11), (11, 12)):
        slider.set_limits((Marker(first, "pin", PIN.label), Marker(second, "ram", RAM.label)))
        for width in (900, 420):
            slider.resize(width, 54)
            left, right = slider.label_boxes()
            assert left.left() >= 0
            assert right.right() <= width
            assert left.right() <= right.left()


def column(slider: SplitSlider, x: float) -> set[str]:
    """Colours on the track at x, rounded names."""
    image = slider.grab().toImage()
    return {image.pixelColor(round(x), y).name() for y in range(5, 24)}


def test_a_measured_limit_is_a_line_and_an_assumed_one_is_dashed(slider: SplitSlider, theme: Theme) -> None:
    theme.choose("light")
    slider.set_limits((PIN,))
    solid = slider.grab().toImage()
    slider.set_limits((PIN,), assumed=True)
    dashed = slider.grab().toImage()
    x = round(slider.x_of(PIN.stop - 0.5))

    def inked(image: object) -> int:
        colours = (image.pixelColor(x, y) for y in range(18, 33))  # type: ignore[attr-defined]
        return sum(colour.red() < 200 and colour.blue() < 120 for colour in colours)

    assert inked(solid) > inked(dashed) > 0


def test_an_unmet_wish_hollows_the_handle(slider: SplitSlider, theme: Theme) -> None:
    theme.choose("light")
    slider.setValue(5)
    middle = QPoint(round(slider.x_of(5)), 14)
    assert slider.grab().toImage().pixelColor(middle).name().upper() == LIGHT.accent
    slider.set_limits((), unmet=True)
    assert slider.grab().toImage().pixelColor(middle).name().upper() == LIGHT.handle


def test_the_widget_is_lower_where_there_is_no_limit_to_name(slider: SplitSlider) -> None:
    bare = slider.sizeHint().height()
    slider.set_limits((PIN,))
    assert slider.sizeHint().height() > bare
