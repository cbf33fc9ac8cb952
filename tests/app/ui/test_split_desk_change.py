"""Another split for the engine that runs: what would change, Apply, restart, and what a refusal leaves."""

import json
import urllib.request
from pathlib import Path
from threading import Thread

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.core.library import Library
from app.planning.wishes import Wishes
from app.ui.split_view import ChangeView
from app.ui.theme import Theme
from app.ui.widgets.layer_strip import describe
from engine.contract.facts import Reading, Source
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.plan_change import PlanWish
from engine.contract.units import MIB
from tests.app.ui import samples
from tests.app.ui.desk_kit import WAIT_MS, DeskKit
from tests.support.hollow_model import hollow_mixtral

GPU = SimulatedGpu(vram_bytes=24 * MIB, pin_bytes=1 * MIB)
SHORT = Wishes(context_tokens=1024)
REFUSED = "The split was not changed; the engine runs on with the one it has"


def running(kit: DeskKit, model: Path, wishes: Wishes = SHORT) -> int:
    """Open, start, wait; returns the PID."""
    kit.open(model, wishes)
    kit.page.main_button.click()
    kit.wait_for("ready")
    pid = kit.store.state.pid
    assert pid is not None
    return pid


def change(kit: DeskKit) -> ChangeView:
    found = kit.page.trade.change.view
    assert found is not None
    return found


def context(kit: DeskKit) -> int:
    """Of the engine that runs."""
    assert kit.store.state.plan is not None
    return kit.store.state.plan.context_tokens


def ask(kit: DeskKit, answers: list[str]) -> Thread:
    """Somebody asks over HTTP, and is being answered when this returns."""

    def post() -> None:
        body = json.dumps({"messages": [{"role": "user", "content": "Go on."}]}).encode()
        request = urllib.request.Request(f"{kit.store.state.api_base}/chat/completions", body)
        with urllib.request.urlopen(request, timeout=WAIT_MS / 1000) as response:
            answers.append(json.load(response)["choices"][0]["message"]["content"])

    asking = Thread(target=post)
    asking.start()
    kit.qtbot.waitUntil(lambda: kit.store.state.request is not None, timeout=WAIT_MS)
    return asking


def test_another_context_is_shown_against_what_runs_and_applied_without_a_start(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        pid = running(kit, model)
        assert kit.page.trade.change.view is None
        kit.desk.wish_context(4096)
        shown = change(kit)
        assert (shown.title, shown.apply, shown.undo) == ("Apply moves no layer", "Apply", "Keep as it is")
        assert shown.text.startswith("Context 1,024 to 4,096 tokens, ")
        assert context(kit) == 1024, "nothing happens without a click"
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: context(kit) == 4096, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: bool(kit.titles), timeout=WAIT_MS)
        assert kit.titles == ["The split was changed in 0.0 s"]
        assert kit.page.trade.change.view is None
        assert kit.store.state.pid == pid
        assert kit.page.pill.accessibleName() == "Engine state: Ready"
        assert kit.page.trade.context._button.text() == "4,096 tokens"


def test_layers_that_would_move_are_outlined_in_two_rows_and_counted_with_their_bytes(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, simulated_gpu=GPU) as kit:
        running(kit, model, Wishes(context_tokens=1024, vram_layers=2))
        strip = kit.page.layers.strip
        assert not strip.shown.two_rows
        kit.page.tier_wished.emit(0, Tier.LOCKED)
        kit.page.tier_wished.emit(1, Tier.VRAM)
        assert strip.shown.two_rows
        moved = [cell for cell in strip.shown.cells if cell.now is not cell.tier]
        assert moved and all(cell.now is not None for cell in moved)
        assert "VRAM to locked: 1 layer" in change(kit).text
        assert ". Now: in VRAM, no copy needed" in describe(strip.shown.cells[0])
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: kit.page.trade.change.view is None, timeout=WAIT_MS)
        residency = kit.store.state.residency
        assert residency is not None
        assert [layer.settled for layer in residency.layers] == [cell.tier for cell in strip.shown.cells]
        assert not strip.shown.two_rows


def test_a_wish_that_is_taken_back_leaves_nothing_to_apply(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        running(kit, model)
        kit.desk.wish_context(4096)
        kit.page.trade.change.undo.click()
        assert kit.page.trade.change.view is None
        assert kit.desk.wishes == SHORT
        kit.desk.wish_context(4096)
        kit.desk.wish_context(1024)
        assert kit.page.trade.change.view is None


def test_a_refusal_keeps_the_old_split_says_both_numbers_and_offers_a_restart(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--refuse-plan",)) as kit:
        pid = running(kit, model)
        kit.desk.wish_context(4096)
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: kit.titles == [REFUSED], timeout=WAIT_MS)
        [banner] = kit.page.banners.banners
        assert "needs 2.0 MiB of GPU memory; 1.0 MiB can be used" in banner.notice.text
        assert (context(kit), kit.store.state.pid) == (1024, pid)
        assert (change(kit).apply, change(kit).tone) == ("Restart to apply", "warn")
        kit.press("Restart to apply")
        assert kit.titles == []
        qtbot.waitUntil(lambda: kit.store.state.pid not in (pid, None), timeout=WAIT_MS)
        kit.wait_for("ready")
        assert context(kit) == 4096
        assert kit.page.trade.change.view is None


def test_another_model_is_a_matter_of_a_restart(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        pid = running(kit, model)
        other = hollow_mixtral(tmp_path / "other-moe")
        kit.desk.show_library(Library((model, other)), {model: SHORT}, model)
        assert kit.page.chooser.isEnabled()
        kit.page.model_wished.emit(other)
        qtbot.waitUntil(lambda: kit.page.trade.change.view is not None, timeout=WAIT_MS)
        assert change(kit).title == "other-moe needs a restart of the engine"
        assert change(kit).text == "It runs tiny-moe, whose memory is given back first."
        kit.page.trade.change.undo.click()
        qtbot.waitUntil(lambda: kit.desk.inputs.model_name == "tiny-moe", timeout=WAIT_MS)
        kit.page.model_wished.emit(other)
        qtbot.waitUntil(lambda: kit.page.trade.change.view is not None, timeout=WAIT_MS)
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: kit.store.state.pid not in (pid, None), timeout=WAIT_MS)
        kit.wait_for("ready")
        assert kit.store.state.plan is not None and kit.store.state.plan.model_dir == str(other)


def test_an_answer_in_progress_is_finished_before_the_split_changes(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    options = ("--token-delay-ms", "20", "--reply", " ".join(["word"] * 40))
    with DeskKit(qtbot, theme, tmp_path, engine_options=options) as kit:
        running(kit, model)
        answers: list[str] = []
        asking = ask(kit, answers)
        kit.desk.wish_context(4096)
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: kit.store.state.change is not None, timeout=WAIT_MS)
        assert change(kit).title == "Waits until the answer in progress is complete"
        assert change(kit).busy
        assert not kit.page.trade.slider.isEnabled()
        assert context(kit) == 1024
        qtbot.waitUntil(lambda: context(kit) == 4096, timeout=WAIT_MS)
        asking.join(WAIT_MS / 1000)
        assert answers == [" ".join(["word"] * 40)]


def test_a_change_that_waits_is_called_off_and_can_be_asked_for_again(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    options = ("--token-delay-ms", "20", "--reply", " ".join(["word"] * 40), "--refuse-plan")
    with DeskKit(qtbot, theme, tmp_path, engine_options=options) as kit:
        running(kit, model)
        asking = ask(kit, [])
        kit.desk.wish_context(4096)
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: change(kit).undo == "Call off", timeout=WAIT_MS)
        kit.page.trade.change.undo.click()
        assert kit.store.state.change is None
        assert (change(kit).apply, kit.titles) == ("Apply", [])
        asking.join(WAIT_MS / 1000)


def test_a_restart_waits_for_the_answer_and_a_stop_calls_it_off(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    options = ("--token-delay-ms", "20", "--reply", " ".join(["word"] * 40), "--refuse-plan")
    with DeskKit(qtbot, theme, tmp_path, engine_options=options) as kit:
        pid = running(kit, model)
        kit.desk.wish_context(4096)
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: kit.titles == [REFUSED], timeout=WAIT_MS)
        answers: list[str] = []
        asking = ask(kit, answers)
        kit.page.trade.change.apply.click()
        assert kit.store.state.change is not None and kit.store.state.change.restart
        assert change(kit).text == "Then the engine is started again"
        qtbot.waitUntil(lambda: kit.store.state.stage == "stopping", timeout=WAIT_MS)
        asking.join(WAIT_MS / 1000)
        assert len(answers) == 1 and kit.store.state.pid == pid
        kit.desk.stop()
        kit.wait_for("stopped")
        qtbot.waitUntil(lambda: kit.page.main_button.isEnabled(), timeout=WAIT_MS)
        assert not kit.desk.inputs.starting
        assert kit.desk.plan is not None and kit.desk.plan.context_tokens == 4096


def test_memory_that_others_took_since_the_start_is_refused_before_the_engine_is_asked(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        running(kit, model)
        kit.desk.wish_context(4096)
        nothing = Reading(value=200 * MIB, source=Source.READ)
        kit.world.facts = samples.NO_GPU.model_copy(update={"ram_available": nothing})
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: bool(kit.titles), timeout=WAIT_MS)
        assert "of RAM" in kit.titles[0]
        assert (change(kit).title, change(kit).apply) == ("The engine runs on with the split it has", "")
        assert (context(kit), kit.store.state.change) == (1024, None)
        kit.page.trade.change.undo.click()
        assert kit.page.trade.change.view is None


def test_a_split_that_somebody_else_gave_the_engine_is_shown_and_not_called_a_wish(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        running(kit, model)
        body = PlanWish(context_tokens=2048).model_dump_json(exclude_none=True).encode()
        with urllib.request.urlopen(f"{kit.store.state.api_base}/plan", body, timeout=WAIT_MS / 1000) as response:
            assert response.status == 200
        qtbot.waitUntil(lambda: context(kit) == 2048, timeout=WAIT_MS)
        assert kit.page.trade.change.view is None
        assert kit.page.trade.context._button.text() == "2,048 tokens"
        assert kit.desk.wishes == Wishes(context_tokens=2048), "Start would send the same"
        kit.desk.wish_context(1024)
        assert change(kit).text.startswith("Context 2,048 to 1,024 tokens"), "as at first"


def test_an_engine_that_dies_meanwhile_is_told_once(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--plan-delay-ms", "60000")) as kit:
        running(kit, model)
        kit.desk.wish_context(4096)
        kit.page.trade.change.apply.click()
        qtbot.waitUntil(lambda: kit.store.state.change is not None, timeout=WAIT_MS)
        assert kit.page.pill.accessibleName() == "Engine state: Changing the split"
        assert change(kit).title == "The split is being changed. Chats go on when it is done"
        assert kit.engine.child is not None
        kit.engine.child._child.kill_tree()
        kit.wait_for("failed")
        qtbot.waitUntil(lambda: len(kit.titles) == 1, timeout=WAIT_MS)
        assert kit.page.trade.change.view is None
        assert kit.desk.plan is not None, "Start would send what was wished for"


def test_tab_goes_from_the_slider_to_the_buttons_of_the_change_and_comes_back_afterwards(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        running(kit, model)
        kit.page.show()
        kit.page.activateWindow()
        slider, bar = kit.page.trade.slider, kit.page.trade.change
        slider.setFocus()
        QTest.keyClick(slider, Qt.Key.Key_End)
        qtbot.waitUntil(bar.isVisible)
        passed = []
        for _ in range(2):
            QTest.keyClick(kit.page.window().focusWidget(), Qt.Key.Key_Tab)
            passed.append(kit.page.window().focusWidget())
        assert passed == [bar.undo, bar.apply]
        assert [button.accessibleName() for button in passed] == ["Keep as it is", "Apply"]
        assert "Change the running engine" in bar.apply.accessibleDescription()
        assert bar.accessibleName() == "Apply moves no layer"
        QTest.keyClick(bar.apply, Qt.Key.Key_Space)
        qtbot.waitUntil(lambda: context(kit) == 8192, timeout=WAIT_MS)
        qtbot.waitUntil(lambda: bar.view is None, timeout=WAIT_MS)
        assert kit.page.window().focusWidget() is slider, "the keyboard goes on where the change came from"
