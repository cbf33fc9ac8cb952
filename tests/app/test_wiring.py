"""The whole window on the engine without torch: from an empty profile to an answer, and back to nothing."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QShortcut
from PySide6.QtWidgets import QApplication, QFileDialog, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.core.library import DEMO_MARKER, DEMO_NAME
from app.paths import Profile
from app.planning.wishes import Wishes
from app.settings import Settings, SettingsFile
from app.ui.pages.chat_words import session_line
from app.ui.pick_folder import pick_folder
from app.ui.shortcut_list import SHORTCUTS
from app.wiring import App, LaunchOptions, open_window
from engine.contract.errors import ModelFolderError, UsageError
from engine.contract.plan import SimulatedGpu
from engine.contract.units import MIB
from engine.system.recorded import RecordedFileError
from tests.app.supervision.recorder import fake_engine
from tests.support.hollow_model import hollow_mixtral

WAIT_MS = 30_000
MACHINES = Path(__file__).parents[1] / "machines"

# The platform without a screen has no tray to speak to and cannot raise windows.
pytestmark = pytest.mark.qt_log_ignore("systemTrayWindowChanged", "does not support raise", "propagateSizeHints")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return hollow_mixtral(tmp_path / "tiny-moe")


@pytest.fixture
def options(tmp_path: Path, model: Path) -> LaunchOptions:
    return LaunchOptions(
        Profile(tmp_path / "profile"), engine_argv=fake_engine("--reply", "Paris is it."), model=model, demo_dir=None
    )


@pytest.fixture
def apps(qtbot: QtBot) -> Iterator[list[App]]:
    """Windows of this test; closed afterwards."""
    made: list[App] = []
    yield made
    for app in made:
        app.close()
        app.window.deleteLater()


def build(apps: list[App], qapp: QApplication, options: LaunchOptions) -> App:
    app = App(qapp, options, pick=lambda _: None)
    apps.append(app)
    app.begin()
    return app


def wait_for(qtbot: QtBot, app: App, stage: str) -> None:
    qtbot.waitUntil(lambda: app.store.state.stage == stage, timeout=WAIT_MS)


def test_from_an_empty_profile_to_an_answer_and_back_to_nothing(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions
) -> None:
    app = build(apps, qapp, options)
    qtbot.waitUntil(lambda: app.split_page.main_button.isEnabled(), timeout=WAIT_MS)
    app.split_page.main_button.click()
    wait_for(qtbot, app, "ready")
    app.window.show_page("chat")
    app.chat_page.composer.set_text("What is the capital of France?")
    app.chat_page.composer.send_asked.emit()

    def answered() -> bool:
        chat = app.chat_page.flow.conversation
        return chat is not None and any("Paris is it." in message.text for message in chat.messages)

    qtbot.waitUntil(answered, timeout=WAIT_MS)
    app.split_page.main_button.click()
    wait_for(qtbot, app, "stopped")


def test_the_chat_page_can_start_the_engine(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions
) -> None:
    app = build(apps, qapp, options)
    qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
    app.chat_page.start_requested.emit()
    wait_for(qtbot, app, "ready")


def test_a_choice_is_there_again_after_a_restart(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions, model: Path
) -> None:
    app = build(apps, qapp, options)
    qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
    app.desk.wish_context(5120)
    app.close()
    saved = SettingsFile(options.profile.settings_file).load().settings
    assert saved.last_model == str(model)
    assert saved.wishes[str(model)] == Wishes(context_tokens=5120)
    again = build(apps, qapp, options)
    qtbot.waitUntil(lambda: again.desk.plan is not None, timeout=WAIT_MS)
    assert again.desk.plan is not None
    assert again.desk.plan.context_tokens == 5120


def test_a_simulated_gpu_is_for_this_run_only(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    app = build(apps, qapp, LaunchOptions(options.profile, model=model, simulated_gpu=limits, demo_dir=None))
    qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
    app.desk.wish_context(1024)
    app.close()
    saved = SettingsFile(options.profile.settings_file).load().settings
    assert saved.wishes[str(model)].simulated_gpu is None


def test_an_added_folder_is_kept_and_a_wrong_one_is_refused_in_words(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions, tmp_path: Path
) -> None:
    other, nothing = hollow_mixtral(tmp_path / "other"), tmp_path / "nothing"
    nothing.mkdir()
    answers = [nothing, other, None]
    app = App(qapp, options, pick=lambda _: answers.pop(0))
    apps.append(app)
    app.begin()
    app.split_page.add_model_wanted.emit()
    assert "config.json" in app.split_page.banners.banners[0].notice.title
    app.split_page.add_model_wanted.emit()
    qtbot.waitUntil(lambda: app.desk.plan is not None and app.desk.plan.model_dir == str(other), timeout=WAIT_MS)
    app.split_page.add_model_wanted.emit()
    app.close()
    assert str(other) in SettingsFile(options.profile.settings_file).load().settings.model_folders


def test_of_a_folder_with_several_gguf_models_one_file_is_chosen(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ["a-Q4.gguf", "mmproj-F16.gguf"]
    asked: list[str] = []

    def ask(parent: QWidget, title: str, folder: str, kinds: str) -> tuple[str, str]:
        asked.append(kinds)
        return str(Path(folder) / "a-Q8.gguf"), kinds

    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(tmp_path))
    monkeypatch.setattr(QFileDialog, "getOpenFileName", ask)
    window = QWidget()
    qtbot.addWidget(window)
    for name in names:
        (tmp_path / name).touch()
    assert pick_folder(window) == tmp_path
    assert asked == []
    (tmp_path / "a-Q8.gguf").touch()
    assert pick_folder(window) == tmp_path / "a-Q8.gguf"
    assert asked == ["GGUF models (*.gguf)"]


def test_a_model_named_on_the_command_line_is_in_the_list_from_then_on_and_can_leave_it(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions, model: Path
) -> None:
    build(apps, qapp, options).close()
    without = LaunchOptions(options.profile, engine_argv=options.engine_argv, demo_dir=None)
    app = build(apps, qapp, without)
    qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
    assert app.desk.plan is not None
    assert app.desk.plan.model_dir == str(model)
    app.desk.remove_model_wanted.emit(model)
    app.close()
    assert SettingsFile(options.profile.settings_file).load().settings.model_folders == ()
    assert (model / "config.json").is_file()


def test_the_limit_for_pinned_memory_is_kept_for_this_pc(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions
) -> None:
    app = build(apps, qapp, options)
    app.desk.pins_limited.emit(3 * MIB)
    app.close()
    again = build(apps, qapp, options)
    assert again.desk.wishes.pin_cap_bytes == 3 * MIB
    again.close()
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    simulated = build(apps, qapp, LaunchOptions(options.profile, simulated_gpu=limits, demo_dir=None))
    assert simulated.desk.wishes.pin_cap_bytes is None, "another machine, another limit"


def test_every_key_of_the_list_of_shortcuts_does_something(
    qapp: QApplication, apps: list[App], options: LaunchOptions
) -> None:
    app = build(apps, qapp, options)
    known = {shortcut.key().toString() for shortcut in app.window.findChildren(QShortcut)}
    listed = {key for keys, _ in SHORTCUTS if " in " not in keys for key in keys.split(", ")}
    of_widgets = {"← → Page Up", "Page Down", "Home", "End", "Enter", "Shift+Enter"}
    assert listed - of_widgets == known


def test_a_broken_settings_file_is_kept_aside_and_told(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions
) -> None:
    options.profile.folder.mkdir(parents=True)
    options.profile.settings_file.write_text("{ not json", "utf-8")
    app = build(apps, qapp, options)
    assert "settings file could not be understood" in app.split_page.banners.banners[0].notice.title


def test_a_fault_that_nothing_caught_is_logged_and_said(
    qapp: QApplication, apps: list[App], options: LaunchOptions, caplog: pytest.LogCaptureFixture
) -> None:
    app = build(apps, qapp, options)
    fault = ZeroDivisionError("by zero")
    app.report_fault(ZeroDivisionError, fault, None)
    assert app.split_page.banners.banners[0].notice.title == "Something unexpected happened: ZeroDivisionError: by zero"
    assert "launcher.log" in app.split_page.banners.banners[0].notice.text
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [fault]


@pytest.mark.slow
def test_a_second_start_with_another_model_hands_it_to_the_first_window(tmp_path: Path, model: Path) -> None:
    other, profile = hollow_mixtral(tmp_path / "other"), Profile(tmp_path / "profile")
    command = [sys.executable, "-m", "app", "--profile-dir", str(profile.folder), "--model"]
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    with subprocess.Popen([*command, str(model)], env=environment) as first:
        try:
            deadline = time.monotonic() + 60

            def wait_until(done: Callable[[], bool]) -> None:
                while not done():
                    assert first.poll() is None and time.monotonic() < deadline
                    time.sleep(0.05)

            def chosen() -> str | None:
                return SettingsFile(profile.settings_file).load().settings.last_model

            wait_until(lambda: profile.settings_file.exists() and chosen() == str(model))
            second = subprocess.run([*command, str(other)], env=environment, check=False, timeout=60)
            assert second.returncode == 0
            wait_until(lambda: chosen() == str(other))
            assert str(other) in SettingsFile(profile.settings_file).load().settings.model_folders
        finally:
            first.terminate()


def test_a_model_that_a_second_start_names_is_offered_beside_the_one_that_runs(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions, tmp_path: Path
) -> None:
    other = hollow_mixtral(tmp_path / "other")
    app = build(apps, qapp, options)
    qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
    app.desk.start()
    qtbot.waitUntil(lambda: app.store.state.running, timeout=WAIT_MS)
    app.open_model(other)
    assert app.desk.inputs.model_name == "tiny-moe"
    titles = [banner.notice.title for banner in app.split_page.banners.banners]
    assert titles == ["other is in the list; it can be chosen when the engine is ready or stopped"]
    wait_for(qtbot, app, "ready")
    app.open_model(other)
    qtbot.waitUntil(lambda: app.split_page.trade.change.view is not None, timeout=WAIT_MS)
    assert app.split_page.trade.change.apply.text() == "Restart to apply"
    assert app.tray._view is not None and app.tray._view.items[0].text == "Ready · tiny-moe", "what runs"
    app.open_model(tmp_path / "nothing")
    assert "There is no folder" in app.split_page.banners.banners[0].notice.title


def test_a_model_has_one_name_on_every_page(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions, model: Path
) -> None:
    (model / DEMO_MARKER).write_text("{}", "utf-8")
    app = build(apps, qapp, options)
    qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
    app.desk.start()
    wait_for(qtbot, app, "ready")
    state = app.store.state
    assert state.model_name == app.desk.inputs.model_name == DEMO_NAME
    assert session_line(state).startswith(f"{DEMO_NAME} · ")
    assert state.plan is not None and state.plan.model.name == "tiny-moe", "clients know it by its folder"


def test_a_recorded_machine_is_labelled_and_its_bars_are_shown(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions, model: Path
) -> None:
    recorded = LaunchOptions(
        options.profile, machine=MACHINES / "desktop_63gb_rtx4090.json", model=model, demo_dir=None
    )
    app = build(apps, qapp, recorded)
    qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: not app.window.rail.vram.isHidden(), timeout=WAIT_MS)
    assert any("Recorded machine" in text for text in app.split_page.tags)


def test_what_the_command_line_names_must_be_there(qapp: QApplication, options: LaunchOptions, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError):
        App(qapp, LaunchOptions(options.profile, model=tmp_path / "absent"))
    with pytest.raises(RecordedFileError):
        App(qapp, LaunchOptions(options.profile, machine=tmp_path / "absent.json"))


def test_a_refusal_needs_no_display_and_a_missing_display_is_a_sentence(
    options: LaunchOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelFolderError):
        open_window(LaunchOptions(options.profile, model=tmp_path / "absent"))
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="no display"):
        open_window(options)


def test_t16_a_taken_port_is_named_and_one_button_goes_on_with_a_free_one(
    qtbot: QtBot, qapp: QApplication, apps: list[App], options: LaunchOptions
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        taken = thief.getsockname()[1]
        SettingsFile(options.profile.settings_file).save(Settings(port=taken))
        app = build(apps, qapp, options)
        qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
        app.desk.start()
        wait_for(qtbot, app, "failed")
        [banner] = [each for each in app.split_page.banners.banners if f"Port {taken}" in each.notice.title]
        assert f"PID {os.getpid()}" in banner.notice.title
        [button] = [each for each in banner.findChildren(QPushButton) if each.text().startswith("Use port")]
        offered = int(button.text().removeprefix("Use port "))
        button.click()
        wait_for(qtbot, app, "ready")
        assert app.store.state.port == offered == app.keeper.settings.port
        assert app.store.state.api_base == f"http://127.0.0.1:{offered}/v1"


def test_the_window_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, app.wiring; print({'torch', 'numpy', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
