"""Window, tray and engine together: closing, shortcuts, the rail."""

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.planning.wishes import Wishes
from app.ui.close_question import CloseQuestion, Closing, held_words
from app.ui.main_window import MainWindow
from app.ui.shell import Shell
from app.ui.theme import Theme
from app.ui.tray import Tray
from app.ui.widgets.rail import NARROW_PX, WIDE_PX, RailEntry
from app.ui.window_memory import WindowMemory
from engine.contract.events import StepStalled
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.residency import ResidencyReport
from engine.contract.units import GIB, MIB
from engine.system.protocols import MemoryUse
from tests.app.ui import samples
from tests.app.ui.desk_kit import WAIT_MS, DeskKit

# The platform without a screen has no tray to speak to and cannot raise windows.
pytestmark = pytest.mark.qt_log_ignore("systemTrayWindowChanged", "does not support raise", "propagateSizeHints")


class ShellKit:
    """A window around a `DeskKit`; `tray_there` and the answer to the closing question are the test's."""

    def __init__(self, kit: DeskKit, qtbot: QtBot, theme: Theme, memory: WindowMemory) -> None:
        self.kit = kit
        self.tray_there = True
        self.closing = Closing(None)
        self.asked: list[ResidencyReport | None] = []
        self.chat = QWidget()
        pages = ((RailEntry("split", "split", "Split"), kit.page), (RailEntry("chat", "chat", "Chat"), self.chat))
        self.window = MainWindow(theme, pages, memory)
        qtbot.addWidget(self.window)
        self.tray = Tray(theme, is_available=lambda: self.tray_there)
        self.shell = Shell(self.window, kit.page, kit.desk, kit.store, kit.engine, self.tray, memory, ask=self._ask)
        self.quits: list[bool] = []
        self.shell.quitting.connect(lambda: self.quits.append(True))
        self.window.show()
        self.tray.begin()

    def _ask(self, parent: QWidget, residency: ResidencyReport | None) -> Closing:
        self.asked.append(residency)
        return self.closing


def test_closing_without_an_engine_ends_the_program(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        app.window.close()
        assert app.asked == []
        assert app.quits == [True]
        app.tray.close()


def test_closing_while_an_engine_runs_asks_and_can_be_called_off(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        kit.desk.start()
        kit.wait_for("ready")
        app.window.close()
        assert len(app.asked) == 1 and app.asked[0] is not None
        assert app.window.isVisible()
        assert app.quits == []
        app.tray.close()


def test_keep_in_the_tray_hides_the_window_and_is_asked_once(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        kit.desk.start()
        kit.wait_for("ready")
        app.closing = Closing("keep", remember=True)
        app.window.close()
        assert not app.window.isVisible()
        assert kit.store.state.running
        app.shell.act("open")
        assert app.window.isVisible()
        app.window.close()
        assert len(app.asked) == 1
        assert window_memory.close_answer == "keep"
        app.tray.close()


def test_without_a_tray_closing_stops_the_engine_and_exits(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        kit.desk.start()
        kit.wait_for("ready")
        app.tray_there = False
        app.window.close()
        assert app.asked == []
        assert app.quits == [True]
        qtbot.waitUntil(lambda: not kit.store.state.running, timeout=WAIT_MS)
        app.tray.close()


def test_quit_from_the_tray_ends_the_engine_first(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        app.shell.act("start")
        kit.wait_for("ready")
        app.shell.act("quit")
        assert app.quits == [True]
        assert kit.engine.close(), "already gone"
        app.tray.close()


def test_the_closing_question_is_answered_by_button_and_remembered_by_switch(qtbot: QtBot, theme: Theme) -> None:
    question = CloseQuestion(theme, samples.ready().session.residency)
    qtbot.addWidget(question)
    assert question.closing == Closing(None)
    buttons = {button.text(): button for button in question.findChildren(QPushButton)}
    question.remember.setChecked(True)
    buttons["Stop engine and exit"].click()
    assert question.closing == Closing("exit", remember=True)
    assert unnamed(question) == []


def test_the_question_says_what_the_engine_keeps() -> None:
    assert held_words(samples.ready().session.residency) == "The engine stays loaded and keeps 94.9 GiB pinned."
    assert held_words(None) == "The engine goes on loading."


def test_shortcuts_start_stop_type_a_context_and_change_pages(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        app.window.activateWindow()
        qtbot.waitUntil(app.window.isActiveWindow)
        QTest.keyClick(app.window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
        assert app.window.page == "chat"
        QTest.keyClick(app.window, Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
        assert app.window.page == "split"
        assert kit.page.trade.context.editing
        QTest.keyClick(app.window, Qt.Key.Key_F5)
        kit.wait_for("ready")
        QTest.keyClick(app.window, Qt.Key.Key_F5, Qt.KeyboardModifier.ShiftModifier)
        kit.wait_for("stopped")
        app.tray.close()


def test_f5_applies_another_split_to_the_engine_that_runs(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model, Wishes(context_tokens=1024))
        kit.desk.start()
        kit.wait_for("ready")
        kit.desk.wish_context(4096)
        assert unnamed(app.window) == []
        app.window.activateWindow()
        qtbot.waitUntil(app.window.isActiveWindow)
        QTest.keyClick(app.window, Qt.Key.Key_F5)

        def applied() -> bool:
            plan = kit.store.state.plan
            return plan is not None and plan.context_tokens == 4096

        qtbot.waitUntil(applied, timeout=WAIT_MS)
        app.tray.close()


def test_an_engine_that_hangs_is_ended_from_the_tray(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--ignore-stop",)) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        kit.desk.start()
        kit.wait_for("ready")
        kit.store.apply(StepStalled(request_id="a", phase="decode", running_s=130, limit_s=120))
        hanging = app.tray._view
        app.shell.act("end_engine")
        kit.wait_for("stopped")
        ended = app.tray._view
        assert hanging is not None and ended is not None
        assert (hanging.glyph.badge, ended.glyph.badge) == ("warn", "")
        app.tray.close()


def test_a_page_that_is_shown_takes_the_keyboard_to_where_it_wants_it(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        entry = QLineEdit()
        QVBoxLayout(app.chat).addWidget(entry)
        app.chat.setFocusProxy(entry)
        app.window.activateWindow()
        qtbot.waitUntil(app.window.isActiveWindow)
        app.window.show_page("chat")
        assert entry.hasFocus()
        app.window.show_page("split")
        assert kit.page.hasFocus(), "nothing that a key could change by accident"
        QTest.keyClick(kit.page, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
        assert entry.hasFocus()
        QTest.keyClick(entry, Qt.Key.Key_F6)
        current = app.window.focusWidget()
        assert current is app.window.rail.current and current.accessibleName() == "Chat"
        QTest.keyClick(current, Qt.Key.Key_F6)
        assert entry.hasFocus()
        app.tray.close()


def test_tab_reaches_a_banner_before_the_cards_below_it(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=27 * MIB, pin_bytes=1 * MIB)
    with DeskKit(qtbot, theme, tmp_path, simulated_gpu=limits) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        kit.desk.wish_context(10**9)
        assert kit.titles == ["The longest context of this model is 8,192 tokens"]
        app.window.activateWindow()
        qtbot.waitUntil(app.window.isActiveWindow)
        (mark,) = [b for b in kit.page.trade.findChildren(QPushButton) if b.text() == "Largest that fits"]
        qtbot.waitUntil(mark.isVisible)
        kit.page.main_button.setFocus()
        passed = []
        for _ in range(4):
            QTest.keyClick(app.window.focusWidget(), Qt.Key.Key_Tab)
            passed.append(app.window.focusWidget().accessibleName())
        assert passed[0] == "Dismiss"
        assert passed[1].startswith("Context (KV cache)")
        assert passed[2:] == ["Largest that fits", "Context against VRAM layers"]
        app.tray.close()


def test_a_new_chat_is_one_key_away_from_the_split_page(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        app.window.activateWindow()
        qtbot.waitUntil(app.window.isActiveWindow)
        kit.page.chooser.setFocus()
        with qtbot.waitSignal(app.shell.new_chat_wanted):
            QTest.keyClick(kit.page.chooser, Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
        assert app.window.page == "chat"
        app.tray.close()


def test_the_rail_is_icons_only_in_a_narrow_window(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        app.window.resize(1180, 800)
        qtbot.waitUntil(lambda: app.window.rail.width() == WIDE_PX)
        app.window.resize(900, 700)
        qtbot.waitUntil(lambda: app.window.rail.width() == NARROW_PX)
        app.tray.close()


def test_a_first_window_fits_a_small_screen(qtbot: QtBot, theme: Theme, window_memory: WindowMemory) -> None:
    window = MainWindow(theme, ((RailEntry("split", "split", "Split"), QWidget()),), window_memory)
    qtbot.addWidget(window)
    room = window.screen().availableGeometry()
    assert room.width() < 1180, "the screen of the test bench is smaller than the window's own size"
    assert window.width() <= room.width() and window.height() <= room.height()
    assert window.minimumWidth() <= room.width()


def test_the_window_comes_back_where_it_was(qtbot: QtBot, theme: Theme, tmp_path: Path) -> None:
    file = tmp_path / "window.ini"
    page = QWidget()
    first = MainWindow(theme, ((RailEntry("split", "split", "Split"), page),), WindowMemory(file))
    qtbot.addWidget(first)
    first.show()
    first.resize(1033, 777)
    place = first.saveGeometry()
    first.close()
    again = WindowMemory(file)
    assert again.geometry == place
    second = MainWindow(theme, ((RailEntry("split", "split", "Split"), QWidget()),), again)
    qtbot.addWidget(second)
    assert second.height() != 800, "it was taken; the screen may be too small for all of it"


def test_the_bars_of_a_simulated_gpu_show_what_the_engine_holds(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    with DeskKit(qtbot, theme, tmp_path, simulated_gpu=limits) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        app.shell.show_memory(MemoryUse(ram_used=GIB, ram_total=4 * GIB))
        assert app.window.rail.vram.accessibleName() == "VRAM: 0 B of 8.0 MiB"
        kit.desk.start()
        kit.wait_for("ready")
        assert app.window.rail.vram.accessibleName() != "VRAM: 0 B of 8.0 MiB"
        assert not app.window.rail.pinned.isHidden()
        app.tray.close()


def test_after_a_refused_pin_the_tray_starts_with_as_many_layers_as_could_be_pinned(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    words = ("--crash-at-layer", "4", "--last-words", "cudaHostRegister failed: out of memory")
    with DeskKit(qtbot, theme, tmp_path, engine_options=words, simulated_gpu=limits) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model, Wishes(vram_layers=1, context_tokens=1024))
        kit.desk.start()
        kit.wait_for("failed")
        asked = kit.store.state.plan
        assert kit.desk.restart_words in [action.text() for action in app.tray.menu.actions()]
        app.shell.act("restart")
        qtbot.waitUntil(lambda: kit.store.state.running, timeout=WAIT_MS)
        sent = kit.store.state.plan
        assert asked is not None and sent is not None
        assert sent.layers_in(Tier.PINNED) < asked.layers_in(Tier.PINNED)
        app.tray.close()


def test_the_log_of_an_engine_that_failed_is_shown_from_the_tray(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--crash-at-layer", "2")) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        kit.desk.start()
        kit.wait_for("failed")
        assert "Show log" in [action.text() for action in app.tray.menu.actions()]
        with qtbot.waitSignal(kit.desk.log_wanted) as wanted:
            app.shell.act("log")
        assert wanted.args == [kit.store.state.log_file]
        app.tray.close()


def test_every_widget_that_takes_the_keyboard_has_a_name(
    qtbot: QtBot, theme: Theme, tmp_path: Path, window_memory: WindowMemory, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--fail-pins-from", "1"), simulated_gpu=limits) as kit:
        app = ShellKit(kit, qtbot, theme, window_memory)
        kit.open(model)
        assert unnamed(app.window) == []
        kit.desk.start()
        kit.wait_for("ready")
        assert kit.titles, "a banner is on screen"
        assert unnamed(app.window) == []
        app.tray.close()


def unnamed(window: QWidget) -> list[str]:
    """Widgets a keyboard or a screen reader reaches and cannot name."""
    found = []
    for widget in window.findChildren(QWidget):
        if widget.focusPolicy() is Qt.FocusPolicy.NoFocus or not widget.isVisible():
            continue
        interface = QAccessible.queryAccessibleInterface(widget)
        if not interface.text(QAccessible.Text.Name):
            found.append(f"{type(widget).__name__} {widget.objectName()}")
    return found
