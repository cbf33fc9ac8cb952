"""The window gives the real engine another split, in the middle of an answer: nothing of it is lost."""

from pathlib import Path

import httpx
import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.chat.conversation import AnswerEnd
from app.paths import Profile
from app.wiring import App, LaunchOptions
from engine.contract.plan import SimulatedGpu, Tier
from engine.contract.units import MIB

WAIT_MS = 120_000

# The platform without a screen has no tray to speak to and cannot raise windows.
pytestmark = pytest.mark.qt_log_ignore("systemTrayWindowChanged", "does not support raise", "propagateSizeHints")


@pytest.mark.slow
def test_apply_in_the_middle_of_an_answer_moves_layers_after_its_last_word(
    qtbot: QtBot, qapp: QApplication, tmp_path: Path, demo_model: Path
) -> None:
    gpu = SimulatedGpu(vram_bytes=900 * MIB, pin_bytes=300 * MIB)
    options = LaunchOptions(Profile(tmp_path / "profile"), model=demo_model, simulated_gpu=gpu, demo_dir=None)
    app = App(qapp, options, pick=lambda _: None)
    try:
        app.begin()
        qtbot.waitUntil(lambda: app.desk.plan is not None, timeout=WAIT_MS)
        app.desk.wish_context(1024)
        app.desk.start()
        qtbot.waitUntil(lambda: app.store.state.stage == "ready", timeout=WAIT_MS)
        before = app.store.state
        assert before.plan is not None

        flow, bar = app.chat_page.flow, app.split_page.trade.change
        assert flow.send("Count from one to ten in words.")
        qtbot.waitUntil(lambda: flow.written_tokens > 2, timeout=WAIT_MS)
        slider = app.split_page.trade.slider
        slider.setValue(slider.maximum())
        assert bar.view is not None and bar.view.apply == "Apply"
        bar.apply.click()
        qtbot.waitUntil(lambda: app.store.state.change is not None, timeout=WAIT_MS)
        shown = app.split_page.layers.strip.shown
        qtbot.waitUntil(lambda: bar.view is None, timeout=WAIT_MS)

        state = app.store.state
        assert state.pid == before.pid and state.stage == "ready"
        assert state.plan is not None and state.plan.context_tokens > before.plan.context_tokens
        assert state.plan.layers_in(Tier.VRAM) < before.plan.layers_in(Tier.VRAM)
        assert state.residency is not None and state.residency.fallen == ()
        assert [layer.settled for layer in state.residency.layers] == [cell.tier for cell in shown.cells]
        assert "moved layers the same as before" in state.residency.self_test
        assert app.tray._view is not None
        assert f"{state.plan.context_tokens:,} tokens · {state.plan.layers_in(Tier.VRAM)} VRAM" in (
            app.tray._view.items[1].text
        )

        qtbot.waitUntil(lambda: not flow.writing, timeout=WAIT_MS)
        assert flow.conversation is not None
        answer = flow.conversation.messages[-1]
        assert answer.end is AnswerEnd.NORMAL and answer.text
        told = httpx.get(f"{state.api_base}/plan", trust_env=False).json()
        assert told["plan"]["tiers"] == [tier.value for tier in state.plan.tiers]
    finally:
        app.close()
        app.window.deleteLater()
