"""A model folder that was changed after the page had read it: seen before the start, or by the engine."""

import os
from pathlib import Path

from pytestqt.qtbot import QtBot

from app.ui.model_desk import ALTERED
from app.ui.theme import Theme
from tests.app.ui.desk_kit import WAIT_MS, DeskKit


def _more_experts_a_token(model: Path, *, unseen: bool = False) -> None:
    """Three in place of two; `unseen`: the file keeps its size and time."""
    config = model / "config.json"
    before = config.stat()
    config.write_text(config.read_text("utf-8").replace('"num_experts_per_tok": 2', '"num_experts_per_tok": 3'))
    if unseen:
        os.utime(config, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert config.stat().st_size == before.st_size


def _planned_experts(kit: DeskKit) -> int:
    assert kit.store.state.plan is not None
    return kit.store.state.plan.model.experts.top_k


def test_start_looks_at_the_folder_again_and_sends_what_is_planned_then(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--read-folder",)) as kit:
        kit.open(model)
        _more_experts_a_token(model)
        kit.page.main_button.click()
        kit.wait_for("ready")
        assert _planned_experts(kit) == 3
        assert kit.titles == [ALTERED]


def test_a_folder_that_became_useless_is_not_started(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.open(model)
        (model / "config.json").write_text("{")
        with qtbot.waitSignal(kit.desk.start_refused, timeout=WAIT_MS):
            kit.page.main_button.click()
        assert not kit.store.state.running
        assert len(kit.titles) == 1 and "config.json" in kit.titles[0]
        assert kit.labels[0] == "Read again"


def test_what_only_the_engine_sees_is_read_and_planned_anew_and_one_button_starts_it(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, engine_options=("--read-folder",)) as kit:
        kit.open(model)
        _more_experts_a_token(model, unseen=True)
        kit.page.main_button.click()
        kit.wait_for("failed")
        qtbot.waitUntil(lambda: "Start with the new plan" in kit.labels, timeout=WAIT_MS)
        notice = kit.page.banners.banners[0].notice
        assert "experts a token 2 in the plan, 3 now" in notice.title
        assert notice.text == "Splitpin has read the folder again and planned anew."
        kit.press("Start with the new plan")
        kit.wait_for("ready")
        assert _planned_experts(kit) == 3
