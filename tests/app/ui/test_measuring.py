"""Measuring from the page: by a click only, in a child that can be called off, remembered, and said in words."""

from pathlib import Path

import pytest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.core.learned import LearnedStore
from app.core.measuring import Measured
from app.planning.speed import Range, Speed
from app.ui.measure_words import result_notice
from app.ui.split_inputs import QuotaFacts
from app.ui.theme import Theme
from engine.contract.errors import UsageError
from engine.contract.facts import Source
from engine.contract.formats import WeightFormat
from engine.contract.probe import ProbeLine, StopReason
from engine.contract.units import GIB
from tests.app.ui import samples
from tests.app.ui.desk_kit import WAIT_MS, DeskKit, World
from tests.support.fake_measurement import RATES


def _link(kit: DeskKit) -> QPushButton:
    """ "Measure now" in the place of the speed."""
    found = kit.page.trade.speed.findChild(QPushButton)
    assert found is not None
    return found


def test_without_a_gpu_a_click_measures_the_formats_of_the_model_and_the_speed_is_shown(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        kit.page.show()
        kit.open(model)
        assert _link(kit).isVisible()
        assert "Speed not measured on this PC" in kit.page.trade.speed.accessibleName()
        _link(kit).click()
        assert kit.page.main_button.text() == "Cancel"
        assert kit.desk.why_not_start == "this PC is being measured"
        qtbot.waitUntil(lambda: kit.titles == ["The speed of this PC was measured in 3.0 s"], timeout=WAIT_MS)
        assert "This split answers with about" in kit.page.banners.banners[0].notice.text
        assert not _link(kit).isVisible()
        assert "figures of this PC" in kit.page.trade.speed.accessibleName()
        assert kit.page.main_button.text() == "Start engine"
        known = LearnedStore(tmp_path / "learned.json").experience(samples.NO_GPU).rates
        assert known is not None and set(known.cpu) == {WeightFormat.BF16}


def test_the_banner_measures_pins_and_speed_and_the_page_is_planned_anew(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(facts=samples.BIG)) as kit:
        kit.open(model)
        assert kit.desk.inputs.quota is not None and kit.desk.inputs.quota.source is Source.ASSUMED
        pills: list[str] = []
        kit.desk.changed.connect(lambda: pills.append(kit.page.pill.accessibleName()))
        kit.press("Measure now")
        qtbot.waitUntil(lambda: any("can be pinned" in title for title in kit.titles), timeout=WAIT_MS)
        assert "Engine state: Measuring 2.0 GiB" in pills
        assert "Engine state: Measuring speed" in pills
        notice = kit.page.banners.banners[0].notice
        assert notice.title == "Measured: 2.0 GiB of RAM can be pinned"
        assert "The speed of this PC was measured in 3.0 s." in notice.text
        assert "Splitpin plans with 1.8 GiB" in notice.text
        quota = kit.desk.inputs.quota
        assert quota is not None
        assert (quota.source, quota.tried) == (Source.MEASURED, True)
        assert len(kit.titles) == 1, "nothing is left to be measured"


def test_a_measurement_is_called_off_by_the_main_button_and_teaches_nothing(
    qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path
) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(facts=samples.BIG, probe="hangs")) as kit:
        kit.open(model)
        kit.press("Measure now")
        qtbot.waitUntil(lambda: "2.0 GiB" in kit.page.pill.accessibleName(), timeout=WAIT_MS)
        kit.page.main_button.click()
        qtbot.waitUntil(lambda: kit.page.main_button.text() == "Start engine", timeout=WAIT_MS)
        qtbot.waitUntil(lambda: not kit.background.busy, timeout=WAIT_MS)
        assert kit.titles == ["The pinned-memory quota of this PC is not measured yet"]
        assert not (tmp_path / "learned.json").exists()


def test_a_window_that_closes_ends_its_measurement(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path, World(facts=samples.BIG, probe="hangs")) as kit:
        kit.open(model)
        kit.press("Measure now")
        qtbot.waitUntil(lambda: "2.0 GiB" in kit.page.pill.accessibleName(), timeout=WAIT_MS)


def test_what_keeps_a_pc_from_being_measured_is_said(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    world = World(refused=UsageError("This PC runs on battery; figures would be too low.", "Connect it to power."))
    with DeskKit(qtbot, theme, tmp_path, world) as kit:
        kit.open(model)
        _link(kit).click()
        qtbot.waitUntil(lambda: kit.titles == ["This PC runs on battery; figures would be too low"], timeout=WAIT_MS)
        assert kit.page.main_button.text() == "Start engine"


def test_nothing_is_measured_without_a_click(qtbot: QtBot, theme: Theme, tmp_path: Path, model: Path) -> None:
    with DeskKit(qtbot, theme, tmp_path) as kit:
        begun: list[bool] = []
        kit.measurement.changed.connect(lambda: begun.append(True))
        kit.open(model)
        kit.page.main_button.click()
        kit.wait_for("ready")
        assert not _link(kit).isVisible(), "an engine would be measured too"
        assert begun == []


@pytest.mark.parametrize(
    ("stopped", "title", "why"),
    [
        ("refused", "Measured: 9.0 GiB of RAM can be pinned", "The driver refused more"),
        ("need", "Measured: at least 9.0 GiB of RAM can be pinned", "grants no more to any program"),
        ("ram", "Measured: at least 9.0 GiB of RAM can be pinned", "so that other programs keep their RAM"),
        ("time", "Measured: at least 9.0 GiB of RAM can be pinned", "it took too long"),
        (None, "Measured: at least 9.0 GiB of RAM can be pinned", "ended early"),
    ],
)
def test_the_words_say_how_sure_a_probe_is(stopped: StopReason | None, title: str, why: str) -> None:
    found = Measured(pins=ProbeLine(pinned_bytes=9 * GIB, stopped=stopped))
    notice = result_notice(found, QuotaFacts(8 * GIB, Source.MEASURED), None)
    assert notice is not None
    assert (notice.severity, notice.title) == ("ok", title)
    assert why in notice.text and "Splitpin plans with 8.0 GiB." in notice.text


def test_the_words_of_a_speed_tell_what_it_means_for_the_split() -> None:
    speed = Speed(Range(3.0, 14.0), "figures of this PC", prefill_tok_s=Range(120.0, 310.0), prompt_tokens=4096)
    notice = result_notice(Measured(rates=RATES), None, speed)
    assert notice is not None
    assert notice.text == "This split answers with about 3.0 to 14 tokens a second, and reads 120 to 310 of a prompt."
    assert result_notice(Measured(), None, speed) is None
