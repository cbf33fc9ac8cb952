"""The Split page in use: model, slider, start, loading, ready, stop, left-over processes."""

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.core.learned import Experience, machine_of
from app.orphans.verdicts import ProgramUse
from app.planning.wishes import Wishes
from app.ui.notices import Notice
from app.ui.theme import Theme
from engine.contract.events import Heartbeat, StepStalled
from engine.contract.facts import Reading, Source
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.units import GIB, MIB
from tests.app.ui import samples
from tests.app.ui.desk_kit import WAIT_MS, DeskKit, World
from tests.app.ui.test_notices import an_orphan
from tests.support.hollow_model import LAYERS, hollow_mixtral


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return hollow_mixtral(tmp_path / "tiny-moe")


def context(kit: DeskKit) -> int:
    """Of the plan that Start would send."""
    assert kit.desk.plan is not None
    return kit.desk.plan.context_tokens


def test_a_model_is_read_planned_and_can_be_started_without_a_gpu(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
        assert kit.desk.why_not_start is None
        assert kit.page.main_button.isEnabled()
        assert kit.desk.plan is not None
        assert kit.desk.plan.tiers == (Tier.LOCKED,) * LAYERS


def test_moving_the_slider_plans_anew_and_keeps_the_wish(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
        heard: list[Wishes] = []
        kit.desk.wishes_changed.connect(lambda _, wishes: heard.append(wishes))
        kit.page.show()
        slider = kit.page.trade.slider
        slider.setFocus()
        QTest.keyClick(slider, Qt.Key.Key_Home)
        first = context(kit)
        QTest.keyClick(slider, Qt.Key.Key_Right)
        second = context(kit)
        assert first < second
        assert heard[-1].context_tokens == second
        assert f"{second:,} tokens" in slider.accessibleDescription()


def test_an_exact_context_is_rounded_to_pages_and_ends_at_the_models_maximum(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
        kit.page.trade.context.entered.emit(5000)
        assert context(kit) == 5120
        assert kit.titles == []
        kit.page.trade.context.entered.emit(10**20)
        assert context(kit) == 8192
        assert kit.titles == ["The longest context of this model is 8,192 tokens"]
        kit.page.trade.context.entered.emit(4096)
        assert kit.titles == []


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
        assert not kit.page.trade.slider.isEnabled()
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


def test_start_is_refused_while_an_engine_of_ours_holds_memory_unless_the_user_says_so(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    world = World(orphans=[an_orphan()])
    with DeskKit(qtbot, theme, tmp_path, world) as kit:
        kit.open(model)
        kit.page.main_button.click()
        qtbot.waitUntil(lambda: bool(kit.titles) and kit.titles[0].startswith("The engine was not started"))
        assert not kit.store.state.running
        kit.press("Start anyway")
        kit.wait_for("ready")


def test_one_click_ends_a_process_of_ours_and_reports_what_came_back(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    world = World(orphans=[an_orphan()])
    with DeskKit(qtbot, theme, tmp_path, world) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: kit.titles == ["An engine process from an earlier run still holds memory"])
        kit.press("End process")
        qtbot.waitUntil(lambda: kit.titles == ["Ended. 1.0 GiB of RAM came back in 0.8 s"], timeout=WAIT_MS)
        assert world.ended == [18244]
        assert kit.desk.left_over.orphans == ()


def test_a_process_that_may_be_somebody_elses_needs_a_second_click(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    world = World(orphans=[an_orphan("possible")])
    with DeskKit(qtbot, theme, tmp_path, world) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: kit.titles == ["A process may be left over"])
        kit.press("End process")
        assert world.ended == []
        assert kit.titles == ["End python.exe, PID 18244? Splitpin is not sure that it is its own"]
        kit.press("Keep")
        assert kit.titles == ["A process may be left over"]
        kit.press("End process")
        kit.press("End process")
        qtbot.waitUntil(lambda: world.ended == [18244], timeout=WAIT_MS)


def test_a_process_that_cannot_be_ended_is_offered_again_with_the_reason(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(orphans=[an_orphan()], denied=True)) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: len(kit.titles) == 1)
        kit.press("End process")
        qtbot.waitUntil(lambda: "Windows did not allow ending process 18244" in kit.titles, timeout=WAIT_MS)
        kit.press("End process")


def test_a_possible_process_does_not_stop_a_start(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(orphans=[an_orphan("possible")])) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("ready")


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


def test_pinned_layers_are_chosen_by_slider_and_given_back_by_the_switch(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    with DeskKit(qtbot, theme, tmp_path, simulated_gpu=limits) as kit:
        kit.open(model, Wishes(vram_layers=1, context_tokens=1024))
        assert kit.desk.plan is not None
        most = kit.desk.plan.layers_in(Tier.PINNED)
        kit.page.layers.pinned_slider.setValue(most - 1)
        assert kit.desk.plan.layers_in(Tier.PINNED) == most - 1
        assert not kit.page.layers.fill.isChecked()
        kit.page.layers.fill.click()
        assert kit.desk.plan.layers_in(Tier.PINNED) == most


def test_what_was_granted_becomes_the_limit_and_the_next_plan_keeps_to_it(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    options = ("--fail-pins-from", "2")
    with DeskKit(qtbot, theme, tmp_path, engine_options=options, simulated_gpu=limits) as kit:
        kit.open(model, Wishes(vram_layers=1, context_tokens=1024, pinned_layers=4))
        assert kit.desk.plan is not None and kit.desk.plan.layers_in(Tier.PINNED) == 4
        kit.page.main_button.click()
        kit.wait_for("ready")
        use = next(label for label in kit.labels if label.startswith("Use "))
        with qtbot.assertNotEmitted(kit.desk.pins_limited):  # it says nothing of this PC
            kit.press(use)
        assert kit.desk.plan.layers_in(Tier.PINNED) == 2
        assert kit.titles == ["Splitpin pins at most 0.4 MiB, as you chose"]
        kit.desk.stop_wanted.emit()
        kit.wait_for("stopped")
        assert kit.desk.plan.layers_in(Tier.PINNED) == 2
        kit.press("Remove this limit")
        assert kit.desk.plan.layers_in(Tier.PINNED) == 5


def test_a_layer_can_be_forced_into_a_tier_and_let_go(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    with DeskKit(qtbot, theme, tmp_path, simulated_gpu=limits) as kit:
        kit.open(model, Wishes(context_tokens=1024))
        menu = kit.page.tier_menu(3)
        assert menu is not None
        texts = {action.text(): action for action in menu.actions()}
        assert not texts["Let Splitpin choose"].isEnabled()
        texts["Layer 3: Locked RAM"].trigger()
        assert kit.desk.plan is not None
        assert kit.desk.plan.tiers[3] is Tier.LOCKED
        again = kit.page.tier_menu(3)
        assert again is not None
        {action.text(): action for action in again.actions()}["Let Splitpin choose"].trigger()
        assert kit.desk.wishes.forced == {}


def test_no_model_invites_to_add_one_and_an_unreadable_one_says_why(qtbot: QtBot, theme: Theme, tmp_path: Path) -> None:
    from app.core.library import Library

    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{", "utf-8")
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.page.show()
        kit.desk.show_library(Library(), {}, None)
        assert kit.page.empty.isVisible()
        with qtbot.waitSignal(kit.desk.add_model_wanted):
            kit.page.empty.acted.emit("add")
        kit.open(broken)
        assert not kit.page.empty.isVisible()
        assert "config.json" in kit.titles[0]
        assert kit.page.pill.accessibleName() == "Engine state: Model not readable"
        with qtbot.waitSignal(kit.desk.remove_model_wanted) as removed:
            kit.press("Remove from the list")
        assert removed.args == [broken]
        (broken / "config.json").unlink()
        hollow_mixtral(broken)
        kit.press("Read again")
        qtbot.waitUntil(lambda: kit.desk.plan is not None, timeout=WAIT_MS)
        assert kit.titles == []
        kit.desk.show_library(Library(), {}, None)
        assert kit.page.empty.isVisible(), "the last model left the list"
        assert kit.desk.plan is None


def test_a_model_chosen_while_another_is_read_is_the_one_that_counts(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    from app.core.library import Library

    other = hollow_mixtral(tmp_path / "other")
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.desk.show_library(Library((model, other)), {}, model)
        kit.desk.choose(other)
        kit.desk.read_machine()
        qtbot.waitUntil(lambda: kit.desk.plan is not None, timeout=WAIT_MS)
        assert kit.desk.plan is not None
        assert kit.desk.plan.model_dir == str(other)


def test_facts_that_grow_are_followed(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
        kit.world.facts = samples.NO_GPU.model_copy(update={"ram_total": Reading(value=64 * GIB, source=Source.READ)})
        kit.desk.read_machine()
        qtbot.waitUntil(lambda: kit.desk.inputs.facts == kit.world.facts, timeout=WAIT_MS)


def test_a_process_table_that_cannot_be_read_is_told_and_refuses_no_start(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(blind=True)) as kit:
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("ready")
        assert kit.titles == ["The process table cannot be read"]


def test_ending_a_left_over_engine_is_a_button_where_that_makes_the_split_fit(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    short = samples.NO_GPU.model_copy(update={"ram_available": Reading(value=GIB, source=Source.READ)})
    with DeskKit(qtbot, theme, tmp_path, World(facts=short, orphans=[an_orphan()])) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: "End process 18244" in kit.labels, timeout=WAIT_MS)
        [refusal] = [one.notice for one in kit.page.banners.banners if "of RAM" in one.notice.title]
        assert "end python.exe (PID 18244), which holds 28.9 GiB of RAM" in refusal.text.replace("End", "end")
        kit.world.facts = samples.NO_GPU
        kit.press("End process 18244")
        qtbot.waitUntil(lambda: kit.desk.plan is not None, timeout=WAIT_MS)
        assert kit.world.ended == [18244]


def test_where_other_programs_hold_the_ram_they_are_named_and_the_pc_can_be_looked_at_again(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    short = samples.NO_GPU.model_copy(update={"ram_available": Reading(value=GIB // 5, source=Source.READ)})
    game = ProgramUse(name="game.exe", rss_bytes=20 * GIB, gpu_bytes=0)
    with DeskKit(qtbot, theme, tmp_path, World(facts=short, programs=(game,))) as kit:
        kit.open(model)
        kit.watch.begin()
        qtbot.waitUntil(lambda: "20.0 GiB by game.exe" in kit.page.banners.banners[0].notice.text, timeout=WAIT_MS)
        assert kit.page.banners.banners[0].notice.text.startswith("Close other programs until")
        kit.world.facts = samples.NO_GPU
        kit.press("Check again")
        qtbot.waitUntil(lambda: kit.desk.plan is not None, timeout=WAIT_MS)
        assert kit.titles == []


def test_a_recorded_machine_can_be_planned_for_and_not_started(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    recorded = samples.NO_GPU.model_copy(update={"recorded": True})
    with DeskKit(qtbot, theme, tmp_path, World(facts=recorded)) as kit:
        kit.open(model)
        assert not kit.page.main_button.isEnabled()
        assert "recorded machine" in kit.page.main_button.toolTip()
        assert kit.desk.why_not_start == "a recorded machine"
        with qtbot.waitSignal(kit.desk.start_refused):
            kit.desk.start()
    limits = SimulatedGpu(vram_bytes=8 * MIB, pin_bytes=1 * MIB)
    with DeskKit(qtbot, theme, tmp_path, World(facts=recorded), simulated_gpu=limits) as kit:
        kit.open(model, Wishes(context_tokens=1024))
        assert kit.desk.why_not_start is None, "a simulated GPU runs in the memory of this PC"


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


def test_what_a_fix_has_set_is_told_and_can_be_taken_back(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model, Wishes(allow_pageable=True, ram_reserve_bytes=2 * GIB, context_tokens=4096))
        assert kit.titles == ["This split keeps to your choices: pageable layers allowed, 2.0 GiB of RAM reserved"]
        kit.press("Let Splitpin choose")
        assert kit.titles == []
        assert kit.desk.wishes == Wishes(context_tokens=4096)


def test_an_engine_that_does_not_come_to_an_end_is_stopped_by_a_click_and_never_by_itself(
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
        with qtbot.waitSignal(kit.desk.stop_wanted):
            kit.press("Stop engine")


def test_news_that_arrives_after_the_end_touches_no_page(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
    kit.page.show_models = None  # type: ignore[assignment, method-assign]  # a page that is gone cannot be called either
    kit.desk.show_known(Experience(machine=machine_of(kit.world.facts)))
