"""The Split page and the engine: start, loading, ready, stop, and every way in which it ends."""

from pathlib import Path

from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.planning.wishes import Wishes
from app.ui.notices import Notice
from app.ui.theme import Theme
from engine.contract.events import Heartbeat, StepStalled
from engine.contract.facts import Reading, Source
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.units import MIB
from tests.app.ui import samples
from tests.app.ui.desk_kit import WAIT_MS, DeskKit, World
from tests.app.ui.test_notices import an_orphan


def test_start_loads_cell_by_cell_and_ends_ready_then_stops(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--layer-delay-ms", "30")) as kit:
        kit.open(model)
        fills: list[tuple[float, ...]] = []
        kit.desk.changed.connect(lambda: fills.append(tuple(cell.fill for cell in kit.page.layers.strip.shown.cells)))
        kit.page.main_button.click()
        kit.wait_for("ready")
        assert kit.page.main_button.text() == "Stop engine"
        assert "Reported by the engine at 14:06" in kit.page.memory.note
        assert kit.page.trade.slider.isEnabled(), "another split may be asked for"
        assert not kit.page.trade.change.isVisibleTo(kit.page), "none was"
        full = [sum(fill) for fill in fills]
        loading = full[full.index(0.0) :]
        assert loading == sorted(loading), "a cell that is filled stays filled"
        assert len(set(loading)) > 2
        kit.page.main_button.click()
        kit.wait_for("stopped")
        qtbot.waitUntil(lambda: kit.page.trade.slider.isEnabled(), timeout=WAIT_MS)
        assert kit.page.main_button.text() == "Start engine"


def test_cancel_while_loading_leaves_no_engine(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--layer-delay-ms", "5000")) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("loading")
        assert kit.page.main_button.text() == "Cancel"
        kit.page.main_button.click()
        kit.wait_for("stopped")
        assert kit.titles == [], "an end that was asked for is no problem"


def test_layers_that_fell_are_shown_against_what_was_asked(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--fail-pins-from", "1"), simulated_gpu=limits) as kit:
        kit.open(model, Wishes(vram_layers=1, context_tokens=1024))
        assert kit.desk.plan is not None
        asked = kit.desk.plan.layers_in(Tier.PINNED)
        assert asked > 1
        kit.page.main_button.click()
        kit.wait_for("ready")
        assert kit.page.pill.accessibleName() == "Engine state: Ready, split changed"
        assert kit.titles == [
            f"The engine is running, but it pinned {asked - 1} layer{'s' if asked > 2 else ''} fewer than you asked for"
        ]
        assert kit.page.layers.strip.shown.two_rows


def test_a_crash_is_said_in_words_and_can_be_started_again(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--crash-at-layer", "2")) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("failed")
        assert len(kit.titles) == 1
        kit.press("Start again")
        qtbot.waitUntil(lambda: kit.store.state.running, timeout=WAIT_MS)
        kit.wait_for("failed")


def test_after_a_refused_pin_one_button_starts_with_as_many_layers_as_could_be_pinned(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    words = ("--crash-at-layer", "4", "--last-words", "cudaHostRegister failed: out of memory")
    with DeskKit(qtbot, theme, tmp_path, engine_options=words, simulated_gpu=limits) as kit:
        kit.open(model, Wishes(vram_layers=1, context_tokens=1024))
        kit.page.main_button.click()
        kit.wait_for("failed")
        pinned = sum(one.settled is Tier.PINNED for one in kit.store.state.settled.values())
        assert 0 < pinned < 5
        assert f"{pinned} layers" in kit.page.banners.banners[0].notice.text
        assert kit.desk.restart_words == f"Start with {pinned} pinned layers"
        kit.press(f"Start with {pinned} pinned layers")
        qtbot.waitUntil(lambda: kit.store.state.running, timeout=WAIT_MS)
        assert kit.store.state.plan is not None
        assert kit.store.state.plan.layers_in(Tier.PINNED) == pinned
        assert not kit.page.layers.fill.isChecked(), "the page shows it, and can take it back"
        kit.wait_for("failed")


def test_what_is_wrong_with_an_installation_can_be_copied_for_whoever_helps(
    qtbot: QtBot, qapp: QApplication, theme: Theme, tmp_path: Path, model: Path
) -> None:
    words = ("--crash-at-layer", "1", "--last-words", "ImportError: DLL load failed while importing torch")
    with DeskKit(qtbot, theme, tmp_path, engine_options=words) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("failed")
        kit.press("Copy details")
        assert "DLL load failed while importing torch" in qapp.clipboard().text()


def test_a_commit_limit_is_answered_by_the_settings_of_the_page_file(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    words = ("--crash-at-layer", "1", "--last-words", "OSError: [WinError 1455] The paging file is too small")
    with DeskKit(qtbot, theme, tmp_path, World(windows=True), engine_options=words) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("failed")
        with qtbot.waitSignal(kit.desk.page_file_wanted):
            kit.press("Open page-file settings")


def test_memory_that_went_away_since_the_plan_stops_the_start_with_both_numbers(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
        nothing = Reading(value=200 * MIB, source=Source.READ)
        kit.world.facts = samples.NO_GPU.model_copy(update={"ram_available": nothing})
        kit.page.main_button.click()
        qtbot.waitUntil(lambda: bool(kit.titles), timeout=WAIT_MS)
        assert not kit.store.state.running
        assert "of RAM" in kit.titles[0]
        assert not kit.page.main_button.isEnabled()


def test_a_start_that_is_not_possible_is_told_to_whoever_asked(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        with qtbot.waitSignal(kit.desk.start_refused):
            kit.desk.start()
        kit.world.orphans = [an_orphan()]
        kit.open(model)
        with qtbot.waitSignal(kit.desk.start_refused, timeout=WAIT_MS):
            kit.desk.start()


def test_the_news_of_a_stop_is_over_with_the_next_start(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
        kit.desk.report(Notice("ok", "The engine stopped. 3.0 GiB of RAM came back", about="back"))
        assert len(kit.titles) == 1
        kit.page.main_button.click()
        kit.wait_for("ready")
        assert kit.titles == []


def test_an_engine_that_does_not_come_to_an_end_is_ended_by_a_click_and_never_by_itself(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("ready")
        kit.store.apply(StepStalled(request_id="a", phase="prefill", running_s=600, limit_s=300))
        assert kit.titles == ["The engine has not finished a step for 10 min 0 s"]
        kit.store.apply(Heartbeat(request_id="a", phase="prefill", steps=1, step_s=601))
        assert kit.titles == []
        kit.store.apply(StepStalled(request_id="a", phase="prefill", running_s=600, limit_s=300))
        with qtbot.waitSignal(kit.desk.end_wanted):
            kit.press("End engine")
        kit.wait_for("stopped")
