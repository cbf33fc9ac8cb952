"""Bars, numbers, banners, switches."""

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPlainTextEdit, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.core.library import ModelEntry
from app.ui.notices import Action, Notice
from app.ui.split_bars import bars
from app.ui.split_view import Bar, PillView, Segment, SpeedView, Tile
from app.ui.theme import Theme
from app.ui.tokens import DARK
from app.ui.widgets.banner_stack import BannerStack
from app.ui.widgets.label import Label
from app.ui.widgets.memory_bar import MemoryBar
from app.ui.widgets.menu import round_menu
from app.ui.widgets.mini_bar import MiniBar
from app.ui.widgets.model_chooser import ModelChooser
from app.ui.widgets.number_tile import NOT_A_NUMBER, ContextTile, NumberTile, SpeedTile, parse_tokens
from app.ui.widgets.pill import Pill
from app.ui.widgets.switch import Switch
from app.ui.widgets.turning import Turning
from engine.contract.plan import Tier
from engine.contract.units import GIB
from tests.app.ui import samples


@pytest.mark.parametrize(
    ("typed", "count"),
    [
        ("40000", 40_000),
        ("40,000", 40_000),
        ("40 000 tokens", 40_000),
        ("40.000", 40_000),
        ("32k", 32_768),
        (" 8K ", 8_192),
        ("5.5k", 5_632),
        ("1,5 k", 1_536),
        ("1M", 1_048_576),
        ("5.5", None),
        ("1,23", None),
        ("-5", None),
        ("99999999999999999999", 99_999_999_999_999_999_999),
        ("", None),
        ("0", None),
        ("-5", None),
        ("many", None),
        ("12x", None),
    ],
)
def test_a_context_is_read_the_way_people_write_it(typed: str, count: int | None) -> None:
    assert parse_tokens(typed) == count


@pytest.fixture
def tile(qtbot: QtBot, theme: Theme) -> ContextTile:
    made = ContextTile()
    made.show_tile(Tile("Context (KV cache)", "33,792 tokens", "8.0 GiB KV cache"))
    qtbot.addWidget(made)
    made.show()
    qtbot.waitExposed(made)
    return made


def test_a_click_on_the_number_types_an_exact_context(tile: ContextTile, qtbot: QtBot) -> None:
    button, field = tile.findChild(QPushButton), tile.findChild(QLineEdit)
    assert button is not None
    assert field is not None
    assert button.accessibleName() == "Context (KV cache): 33,792 tokens. 8.0 GiB KV cache"
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    assert tile.editing
    assert field.text() == "33,792"
    field.setText("40000")
    with qtbot.waitSignal(tile.entered) as entered:
        QTest.keyClick(field, Qt.Key.Key_Return)
    assert entered.args == [40_000]
    assert not tile.editing


def test_a_number_of_any_size_is_handed_on(tile: ContextTile, qtbot: QtBot) -> None:
    field = tile.findChild(QLineEdit)
    assert field is not None
    tile.edit()
    field.setText("99999999999999999999")
    with qtbot.waitSignal(tile.entered) as entered:
        QTest.keyClick(field, Qt.Key.Key_Return)
    assert entered.args == [99_999_999_999_999_999_999]


def test_what_is_no_number_stays_in_the_field_and_is_said(tile: ContextTile) -> None:
    field = tile.findChild(QLineEdit)
    assert field is not None
    heard: list[int] = []
    tile.entered.connect(heard.append)
    tile.edit()
    field.setText("banana")
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert tile.editing
    assert heard == []
    assert NOT_A_NUMBER in [label.text() for label in tile.findChildren(Label)]
    tile.show_tile(Tile("Context (KV cache)", "33,792 tokens", "8.0 GiB KV cache"))
    assert NOT_A_NUMBER in [label.text() for label in tile.findChildren(Label)], "news of the plan do not hide it"
    QTest.keyClick(field, Qt.Key.Key_Escape)
    assert "8.0 GiB KV cache" in [label.text() for label in tile.findChildren(Label)]


def test_escape_leaves_the_number_as_it_was(tile: ContextTile) -> None:
    field = tile.findChild(QLineEdit)
    assert field is not None
    heard: list[int] = []
    tile.entered.connect(heard.append)
    tile.edit()
    field.setText("1")
    QTest.keyClick(field, Qt.Key.Key_Escape)
    assert not tile.editing
    assert heard == []


def test_a_number_that_cannot_be_changed_now_opens_no_field(tile: ContextTile) -> None:
    tile.set_editable(False)
    tile.edit()
    assert not tile.editing


@pytest.fixture
def bar(qtbot: QtBot, theme: Theme) -> MemoryBar:
    made = MemoryBar(theme)
    made.resize(900, 59)
    qtbot.addWidget(made)
    return made


def test_a_bar_speaks_its_numbers(bar: MemoryBar) -> None:
    bar.show_bar(bars(samples.stopped())[0])
    assert bar.accessibleName() == "VRAM memory"
    assert bar.accessibleDescription().startswith("30.7 GiB of 31.8 GiB: Other apps 0.9 GiB, Weights 5.4 GiB")


def test_segments_are_as_wide_as_their_bytes(bar: MemoryBar) -> None:
    bar.show_bar(Bar("VRAM", (Segment("KV cache", "kv", 3 * GIB), Segment("Layers", "vram", GIB)), 8 * GIB))
    image = bar.grab().toImage()
    middle = 29
    assert image.pixelColor(300, middle) == QColor(DARK.kv)
    assert image.pixelColor(400, middle) == QColor(DARK.vram)
    assert image.pixelColor(600, middle) == QColor(DARK.free)


def test_more_than_there_is_is_said_and_drawn_against_the_limit(bar: MemoryBar) -> None:
    over = Bar("RAM", (Segment("Locked layers", "locked", 12 * GIB),), 8 * GIB)
    assert over.over
    bar.show_bar(over)
    assert bar.accessibleDescription().endswith("Over the limit.")
    image = bar.grab().toImage()
    column = {image.pixelColor(600, y).name().upper() for y in range(18, 40)}
    assert DARK.error in column


def test_a_legend_that_finds_no_room_leaves_out_the_smallest_part_and_never_the_layers(bar: MemoryBar) -> None:
    bar.show_bar(bars(samples.stopped())[0])
    every = ["Other apps", "Weights", "Runtime", "KV cache", "Expert slots", "Expert layers"]
    assert bar.legend_names() == every
    bar.resize(700, 59)
    assert bar.legend_names() == every, "they move closer together first"
    bar.resize(610, 59)
    assert bar.legend_names() == ["Other apps", "Weights", "Runtime", "KV cache", "Expert layers"]


def test_a_plan_beyond_its_budget_is_over_even_if_the_bytes_exist() -> None:
    within = Bar("RAM", (Segment("Locked layers", "locked", 6 * GIB),), 8 * GIB, limit_bytes=5 * GIB)
    assert within.over


def test_an_unknown_total_hides_its_bar(qtbot: QtBot, theme: Theme) -> None:
    mini = MiniBar(theme, "VRAM", Tier.VRAM)
    qtbot.addWidget(mini)
    mini.show_use(None, None)
    assert mini.isHidden()
    mini.show_use(GIB, 2 * GIB)
    assert not mini.isHidden()
    assert mini.accessibleName() == "VRAM: 1.0 of 2.0 GiB"


def test_a_total_that_nobody_measured_is_not_written_as_if_it_were_known(qtbot: QtBot, theme: Theme) -> None:
    mini = MiniBar(theme, "Pinned", Tier.PINNED)
    qtbot.addWidget(mini)
    mini.show_use(0, 76 * GIB, assumed=True)
    assert mini.accessibleName() == "Pinned: not measured"
    mini.show_use(41 * GIB, 76 * GIB, assumed=True)
    assert mini.accessibleName() == "Pinned: 41.0 GiB"
    mini.show_use(41 * GIB, 76 * GIB)
    assert mini.accessibleName() == "Pinned: 41.0 of 76.0 GiB"


@pytest.fixture
def stack(qtbot: QtBot, theme: Theme) -> BannerStack:
    made = BannerStack(theme)
    qtbot.addWidget(made)
    return made


ERROR = Notice("error", "It failed", "Because.", (Action("Start again", "start", "primary"),), details="exit code 3")
HINT = Notice("info", "A hint")


def shown(stack: BannerStack) -> list[Notice]:
    return [banner.notice for banner in stack.banners]


def test_a_notice_that_is_gone_takes_its_banner_with_it(stack: BannerStack) -> None:
    stack.show_notices((ERROR, HINT))
    assert shown(stack) == [ERROR, HINT]
    kept = stack.banners[1]
    stack.show_notices((HINT,))
    assert stack.banners == (kept,), "a banner that stays is not built again"
    stack.show_notices(())
    assert stack.isHidden()


def test_a_dismissed_hint_does_not_come_back_with_another_number(stack: BannerStack) -> None:
    def hint(number: int) -> Notice:
        return Notice("info", "The quota is not measured yet", f"Splitpin plans with {number} GiB.", about="quota")

    stack.show_notices((hint(70),))
    stack.banners[0].acted.emit("dismiss")
    stack.show_notices((hint(71),))
    assert shown(stack) == []
    stack.show_notices(())
    stack.show_notices((hint(72),))
    assert shown(stack) == [hint(72)], "it was gone in between: it is news again"


def test_a_dismissed_notice_stays_away_until_it_says_something_else(stack: BannerStack) -> None:
    stack.show_notices((HINT,))
    cross = stack.banners[0].findChildren(QPushButton)
    assert cross == [], "a hint without actions has only its cross"
    stack.banners[0].acted.emit("dismiss")
    assert shown(stack) == []
    stack.show_notices((HINT,))
    assert shown(stack) == []
    other = Notice("info", "Another hint")
    stack.show_notices((other,))
    assert shown(stack) == [other]


def test_a_button_of_a_banner_says_which_notice_and_what(stack: BannerStack, qtbot: QtBot) -> None:
    stack.show_notices((ERROR,))
    button = next(b for b in stack.banners[0].findChildren(QPushButton) if b.text() == "Start again")
    with qtbot.waitSignal(stack.acted) as acted:
        button.click()
    assert acted.args == [ERROR, "start"]


def test_details_open_and_can_be_copied(stack: BannerStack) -> None:
    stack.show_notices((ERROR,))
    stack.show()
    banner = stack.banners[0]
    text = banner.findChild(QPlainTextEdit)
    assert text is not None
    assert not text.isVisible()
    buttons = {button.text(): button for button in banner.findChildren(QPushButton)}
    buttons["Details"].click()
    assert text.isVisible()
    buttons["Copy"].click()
    assert QGuiApplication.clipboard().text() == "exit code 3"


def test_the_pill_is_named_by_state(qtbot: QtBot, theme: Theme) -> None:
    pill = Pill(theme)
    qtbot.addWidget(pill)
    before = pill.sizeHint().width()
    pill.show_pill(PillView("Ready, split changed", "warn", "triangle"))
    assert pill.accessibleName() == "Engine state: Ready, split changed"
    assert pill.sizeHint().width() > before


def test_a_switch_is_toggled_by_space_and_by_click(qtbot: QtBot, theme: Theme) -> None:
    switch = Switch(theme, "Fill the quota")
    qtbot.addWidget(switch)
    switch.show()
    QTest.keyClick(switch, Qt.Key.Key_Space)
    assert switch.isChecked()
    QTest.mouseClick(switch, Qt.MouseButton.LeftButton, pos=QPoint(10, 12))
    assert not switch.isChecked()


def test_the_chooser_lists_models_and_the_way_to_add_one(qtbot: QtBot, theme: Theme) -> None:
    chooser = ModelChooser(theme)
    qtbot.addWidget(chooser)
    entries = (ModelEntry(Path("/m/demo"), "demo model"), ModelEntry(Path("/m/big"), "big"))
    chooser.show_models(entries, entries[0])
    assert chooser.menu_actions == ("demo model", "big", "Add a model folder…")
    assert chooser.accessibleName() == "Model: demo model"
    with qtbot.waitSignal(chooser.chosen) as chosen:
        chooser.choose_entry(1)
    assert chosen.args == [Path("/m/big")]


def test_a_menu_has_round_corners_and_nothing_behind_them(qtbot: QtBot, theme: Theme) -> None:
    menu = round_menu()
    qtbot.addWidget(menu)
    menu.addAction("Let Splitpin choose")
    picture = menu.grab().toImage()
    assert picture.pixelColor(0, 0).alpha() == 0
    assert picture.pixelColor(picture.width() // 2, 3).name().upper() == theme.tokens.surface


def test_names_from_disk_are_shown_letter_by_letter(theme: Theme, qtbot: QtBot) -> None:
    entry = ModelEntry(Path("/m/<b>R&D</b>"), "<b>R&D</b>")
    chooser = ModelChooser(theme)
    qtbot.addWidget(chooser)
    chooser.show_models((entry,), entry)
    assert chooser.text() == "<b>R&&D</b>", "one & would underline the next letter and vanish"
    assert chooser.accessibleName() == "Model: <b>R&D</b>"
    assert "&lt;b&gt;R&amp;D" in chooser.toolTip(), "Qt shows what looks like HTML as HTML"
    assert Label("<b>bold</b>").textFormat() is Qt.TextFormat.PlainText


def test_an_arc_without_a_share_turns_only_while_it_is_seen(theme: Theme, qtbot: QtBot) -> None:
    pill = Pill(theme)
    qtbot.addWidget(pill)
    turning = pill.findChild(Turning)
    assert turning is not None
    pill.show_pill(PillView("Starting", "accent", "arc", None))
    assert turning.turn == 0, "hidden"
    pill.show()
    qtbot.waitUntil(lambda: turning.turn > 0)
    pill.show_pill(PillView("Loading 4 %", "accent", "arc", 0.04))
    assert turning.state() is Turning.State.Stopped
    pill.show_pill(PillView("Checking", "accent", "arc", None))
    assert turning.state() is Turning.State.Running
    pill.hide()
    assert turning.state() is Turning.State.Stopped


def test_prompts_have_a_line_of_their_own_which_moves_nothing_when_it_becomes_known(theme: Theme, qtbot: QtBot) -> None:
    tile = SpeedTile(theme)
    qtbot.addWidget(tile)
    tile.show_speed(SpeedView("", "not measured on this PC", "Speed not measured on this PC.", measurable=True))
    before = tile.sizeHint().height()
    tile.show_speed(SpeedView("9.3 to 14", "from figures measured here", "About 9.3.", prompt="prompts 120 to 180"))
    assert [label.text() for label in tile.findChildren(Label) if label.text().startswith("prompts")] == [
        "prompts 120 to 180"
    ]
    assert tile.sizeHint().height() == before
    assert tile.need_px >= max(label.sizeHint().width() for label in tile.findChildren(Label) if not label.isHidden())


@pytest.mark.parametrize("value", ["9.3 to 14", ""])
def test_the_lines_of_the_speed_stand_beside_those_of_the_other_numbers(value: str, theme: Theme, qtbot: QtBot) -> None:
    row = QWidget()
    qtbot.addWidget(row)
    speed, number = SpeedTile(theme), NumberTile()
    layout = QHBoxLayout(row)
    for tile in (number, speed):
        layout.addWidget(tile, 1)
    number.show_tile(Tile("Layers in VRAM", "8", "15.2 GiB"))
    speed.show_speed(SpeedView(value, "from 3 runs", "About 9.3.", prompt="prompts 120" if value else ""))
    row.resize(600, 90)
    row.show()
    qtbot.waitExposed(row)
    lines = {label.text(): label.mapTo(row, QPoint(0, 0)).y() for label in row.findChildren(Label)}
    assert lines["from 3 runs"] == lines["15.2 GiB"]
    assert lines[speed.findChildren(Label)[0].text()] == lines["Layers in VRAM"]
