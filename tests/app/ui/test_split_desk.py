"""The Split page in use: model, slider, wishes and what is planned with them."""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.core.learned import Experience, machine_of
from app.planning.wishes import Wishes
from app.ui.theme import Theme
from engine.contract.facts import Reading, Source
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.units import GIB, MIB
from tests.app.ui import samples
from tests.app.ui.desk_kit import WAIT_MS, DeskKit, World
from tests.support.hollow_model import LAYERS, hollow_mixtral


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
        kit.page.model_wished.emit(other)
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


def test_what_a_fix_has_set_is_told_and_can_be_taken_back(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model, Wishes(allow_pageable=True, ram_reserve_bytes=2 * GIB, context_tokens=4096))
        assert kit.titles == ["This split keeps to your choices: pageable layers allowed, 2.0 GiB of RAM reserved"]
        kit.press("Let Splitpin choose")
        assert kit.titles == []
        assert kit.desk.wishes == Wishes(context_tokens=4096)


def test_news_that_arrives_after_the_end_touches_no_page(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
    kit.page.show_models = None  # type: ignore[assignment, method-assign]  # a page that is gone cannot be called either
    kit.desk.show_known(Experience(machine=machine_of(kit.world.facts)))
