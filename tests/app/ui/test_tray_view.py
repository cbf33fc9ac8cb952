"""What the tray says."""

from dataclasses import replace

import pytest

from app.core.session import EngineStage, SessionState
from app.ui.split_inputs import SplitInputs
from app.ui.tray_view import LONGEST_CAPTION, LONGEST_TIP, Glyph, TrayInputs, TrayView, tip, tray, utf16_units
from engine.contract.plan import Tier
from tests.app.ui import samples
from tests.app.ui.test_notices import an_orphan

LONG_NAME = "Qwen3-30B-A3B-Instruct-2507-" + "x" * 122


def of(inputs: SplitInputs, **more: object) -> TrayView:
    base = TrayInputs(inputs.session, inputs.model_name)
    return tray(replace(base, **more))  # type: ignore[arg-type]


def states() -> dict[str, TrayView]:
    return {
        "stopped": of(samples.stopped()),
        "loading": of(samples.loading()),
        "ready": of(samples.ready()),
        "settled": of(samples.settled()),
        "crashed": of(samples.crashed()),
        "orphans": of(samples.stopped(), orphans=(an_orphan(), an_orphan())),
    }


def test_the_tip_names_model_context_tiers_and_vram() -> None:
    said = tip(TrayInputs(samples.ready().session, "MiniMax-M2.5"))
    assert said.startswith("Splitpin: ready. MiniMax-M2.5, 34,048 tokens. 8 VRAM, 50 pinned, 4 locked. VRAM ")


def test_the_counts_are_what_settled_not_what_was_asked() -> None:
    assert "47 pinned, 7 locked" in states()["settled"].tip


def test_every_state_has_another_tip_and_another_picture() -> None:
    views = states()
    assert len({view.tip for view in views.values()}) == len(views)
    assert len({view.glyph for view in views.values()}) == len(views)
    assert views["loading"].tip.startswith("Splitpin: loading 59 %")
    assert views["orphans"].tip == "Splitpin: stopped. Left-over processes found: 2 (86.2 GiB)."
    assert views["crashed"].tip.startswith("Splitpin: stopped by an error")


@pytest.mark.parametrize("name", [LONG_NAME, "模型" * 75, "🙂" * 75, "m"])
def test_no_tip_is_longer_than_windows_keeps_and_counts_stay(name: str) -> None:
    for inputs in (samples.stopped(), samples.loading(), samples.ready(), samples.settled(), samples.crashed()):
        said = of(replace(inputs, model_name=name)).tip
        assert 0 < utf16_units(said) <= LONGEST_TIP
        assert name[0] in said
    assert "8 VRAM, 50 pinned, 4 locked" in of(replace(samples.ready(), model_name=name)).tip


def test_the_ring_is_bytes_per_tier() -> None:
    glyph = states()["ready"].glyph
    assert glyph.kind == "ready"
    assert [tier for tier, _ in glyph.shares] == [Tier.VRAM, Tier.PINNED, Tier.LOCKED]
    sizes = dict(glyph.shares)
    assert sizes[Tier.PINNED] / sizes[Tier.VRAM] == pytest.approx(50 / 8)


def test_badges_tell_a_changed_split_a_left_over_process_and_an_error_apart() -> None:
    views = states()
    assert (views["settled"].glyph.kind, views["settled"].glyph.badge) == ("ready", "warn")
    assert views["orphans"].glyph == Glyph(badge="warn")
    assert views["crashed"].glyph == Glyph(badge="error")


def texts(view: TrayView) -> list[str]:
    return [item.text for item in view.items if item.text]


def test_a_ready_engine_can_be_stopped_without_opening_the_window() -> None:
    assert texts(states()["ready"]) == [
        "Ready · MiniMax-M2.5",
        "34,048 tokens · 8 VRAM, 50 pinned, 4 locked",
        "Open Splitpin",
        "New chat",
        "Copy API address  127.0.0.1:1919",
        "Stop engine",
        "Quit Splitpin and stop engine",
    ]


def test_an_engine_that_failed_says_why_in_a_line_of_the_width_of_the_others_and_shows_its_log() -> None:
    assert texts(of(samples.pins_refused())) == [
        "Stopped by an error",
        "The engine stopped: pinned memory ran out",
        "Open Splitpin",
        "Show log",
        "Start engine",
        "Quit Splitpin",
    ]
    assert "Show log" not in texts(states()["crashed"]), "no log was written"


def test_after_an_error_start_is_the_change_that_avoids_it() -> None:
    items = of(samples.pins_refused(), restart="Start with 40 pinned layers").items
    assert [(item.text, item.enabled) for item in items if item.id in ("start", "restart")] == [
        ("Start with 40 pinned layers", True)
    ]


def test_a_long_name_makes_no_wide_menu() -> None:
    view = of(replace(samples.ready(), model_name=LONG_NAME))
    assert max(map(len, texts(view))) <= LONGEST_CAPTION


def test_loading_can_be_cancelled() -> None:
    assert texts(states()["loading"])[0] == "Loading 59 %, layer 36 of 62"
    assert "Cancel loading" in texts(states()["loading"])


def test_a_left_over_process_can_be_ended_from_the_menu_only_if_it_is_ours() -> None:
    assert "End process 18244" in texts(states()["orphans"])
    assert not any("End process" in text for text in texts(of(samples.stopped(), orphans=(an_orphan("possible"),))))


def test_start_is_disabled_with_its_reason() -> None:
    items = of(samples.over(), why_not="this split does not fit").items
    start = next(item for item in items if item.id == "start")
    assert (start.text, start.enabled) == ("Start engine: this split does not fit", False)


def test_every_state_can_be_opened_and_quit() -> None:
    stages = [SessionState(stage=stage) for stage in EngineStage]
    for session in [*stages, *(inputs.session for inputs in (samples.ready(), samples.loading()))]:
        ids = [item.id for item in tray(TrayInputs(session)).items]
        assert "open" in ids
        assert ids[-1] == "quit"


def test_an_engine_that_hangs_has_a_badge_a_word_and_its_own_button_until_it_goes_on() -> None:
    stalled = samples.stalled().session
    view = tray(TrayInputs(stalled, "MiniMax-M2.5"))
    assert view.glyph.badge == "warn"
    assert view.tip.startswith("Splitpin: no answer for over 4 min. MiniMax-M2.5, 34,048 tokens.")
    assert view.items[0].text == "No answer for over 4 min · MiniMax-M2.5"
    ids = [item.id for item in view.items]
    assert "end_engine" in ids and "stop" not in ids
    again = tray(TrayInputs(replace(stalled, stalled=None), "MiniMax-M2.5"))
    assert (again.glyph.badge, again.items[0].text) == ("", "Ready · MiniMax-M2.5")
    assert "stop" in [item.id for item in again.items]


def test_a_change_of_the_split_is_told_while_it_happens_and_not_while_it_waits() -> None:
    changing, waiting = samples.changing().session, samples.changing(waits=True).session
    assert tip(TrayInputs(changing, "MiniMax-M2.5")).startswith("Splitpin: changing the split. ")
    assert tray(TrayInputs(changing, "MiniMax-M2.5")).items[0].text == "Changing the split · MiniMax-M2.5"
    assert tip(TrayInputs(waiting, "MiniMax-M2.5")).startswith("Splitpin: answering. ")
