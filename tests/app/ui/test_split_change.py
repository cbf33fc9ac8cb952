"""What the Split page says of another split for the engine that runs."""

from dataclasses import replace

import pytest

from app.core.session import SplitChange
from app.planning.change import Change, Move
from app.ui.split_change import moves_words
from app.ui.split_inputs import SplitInputs
from app.ui.split_presenter import present
from app.ui.split_view import ChangeView, Tile
from engine.contract.errors import Problem
from engine.contract.plan import Tier
from engine.contract.units import GIB
from tests.app.ui import samples


def change(inputs: SplitInputs) -> ChangeView:
    found = present(inputs).change
    assert found is not None
    return found


def tiles(inputs: SplitInputs) -> dict[str, Tile]:
    return {tile.caption: tile for tile in present(inputs).tiles}


@pytest.mark.parametrize("inputs", [samples.stopped(), samples.loading(), samples.ready(), samples.settled()])
def test_where_nothing_else_is_wished_for_there_is_nothing_to_apply(inputs: SplitInputs) -> None:
    view = present(inputs)
    assert view.change is None
    assert view.slider.running is None
    assert all(cell.now is None for cell in view.strip.cells)


def test_what_moves_is_said_with_its_bytes_and_one_button_applies_it() -> None:
    found = change(samples.wishing())
    assert found.title == "Apply moves 8 layers, 15.2 GiB"
    assert found.text == (
        "VRAM to pinned: 4 layers, 7.6 GiB · Pinned to locked: 4 layers, 7.6 GiB · "
        "Context 34,048 to 66,816 tokens, 7.8 GiB more for the KV cache"
    )
    assert (found.apply, found.enabled, found.undo, found.busy) == ("Apply", True, "Keep as it is", False)
    assert "answer in progress is finished first" in found.hint


def test_every_part_of_a_change_has_its_words() -> None:
    move = Move(Tier.PAGEABLE, Tier.VRAM, 1, GIB)
    less = Change((move,), (2048, 1024), (2 * GIB, GIB), (64, 1_200))
    assert moves_words(less) == (
        "Pageable to VRAM: 1 layer, 1.0 GiB · Context 2,048 to 1,024 tokens, 1.0 GiB less for the KV cache · "
        "Expert slots 64 to 1,200"
    )
    assert moves_words(Change((), (512, 512), (0, 0), (0, 0))) == "Only limits differ"


def test_numbers_strip_and_bars_show_what_would_be_beside_what_is() -> None:
    view = present(samples.wishing())
    shown = tiles(samples.wishing())
    assert (shown["Context (KV cache)"].value, shown["Context (KV cache)"].detail) == (
        "66,816 tokens",
        "now 34,048 · 15.8 GiB KV cache",
    )
    assert (shown["Layers in VRAM"].value, shown["Layers in VRAM"].detail) == ("4", "now 8 · 7.6 GiB")
    assert shown["Pinned layers"].detail == "94.9 of 95.6 GiB quota", "as many as before"
    assert (shown["Locked layers"].value, shown["Locked layers"].detail) == ("8", "now 4 · 15.2 GiB")
    assert view.strip.two_rows
    assert [cell.layer for cell in view.strip.cells if cell.now is not cell.tier] == [4, 5, 6, 7, 54, 55, 56, 57]
    assert view.strip.note == "Top row: now. Bottom row: after Apply."
    assert view.memory_note == "What the other split takes. The engine reports the real numbers afterwards."
    assert {part.name: part.bytes for part in view.bars[0].segments}["KV cache"] > 15 * GIB
    assert (view.slider.position, view.slider.running) == (7, 3)
    assert view.pill.text == "Ready", "the engine runs as before"


def test_without_room_to_move_the_reason_has_both_numbers_and_a_restart_is_offered() -> None:
    found = change(samples.wishing_for_room())
    assert (found.title, found.apply, found.tone) == (
        "This split needs a restart of the engine",
        "Restart to apply",
        "warn",
    )
    assert found.text == (
        "Moving the layers while the engine runs needs 105.0 GiB of RAM; 104.1 GiB can be used. "
        "Loading took 49 s last time."
    )


def test_after_refused_pins_and_after_a_refusal_of_the_engine_a_restart_is_offered() -> None:
    assert change(samples.wishing_after_refused_pins()).text.startswith("The driver refused a pin in this run")
    cells = present(samples.wishing_after_refused_pins()).strip.cells
    assert sum(cell.tier is Tier.PINNED for cell in cells) == 50, "after a restart those that fell are tried again"
    refused = change(samples.wishing(refused=Problem(kind="vram", sentence="No.", fix="")))
    assert refused.text.startswith("The engine was asked for it and refused.")
    assert refused.apply == "Restart to apply"


def test_a_long_model_name_is_said_briefly() -> None:
    base = samples.wishing_for_room()
    assert base.plan is not None and base.pending is not None
    plan = base.plan.model_copy(update={"model_dir": "/models/other"})
    named = replace(base, model_name="x" * 200, pending=replace(base.pending, plan=plan))
    assert len(change(named).title) < 80 and change(named).title.endswith(" needs a restart of the engine")
    assert change(named).text == "It runs MiniMax-M2.5, whose memory is given back first."


def test_a_model_that_can_only_be_planned_offers_no_restart() -> None:
    base = samples.wishing_for_room()
    assert base.shape is not None
    found = change(replace(base, shape=base.shape.model_copy(update={"source": "config"})))
    assert not found.enabled
    assert found.hint.startswith("This folder holds no weight files")


def test_while_it_is_under_way_the_page_says_what_comes_first_and_takes_no_other_wish() -> None:
    waits, moves = present(samples.changing(waits=True)), present(samples.changing())
    assert waits.change is not None and moves.change is not None
    assert (waits.change.title, waits.change.undo) == ("Waits until the answer in progress is complete", "Call off")
    assert waits.change.text.startswith("Then: VRAM to pinned")
    assert (moves.change.title, moves.change.undo, moves.change.busy) == (
        "The split is being changed (33 %). Chats go on when it is done",
        "",
        True,
    )
    assert moves.change.share == moves.pill.share == pytest.approx(1 / 3)
    assert (waits.pill.text, moves.pill.text) == ("Answering", "Changing the split")
    for view in (waits, moves):
        assert not view.slider.enabled and not view.pinned.enabled and not view.can_choose
        assert view.quick_marks == ()


def test_a_restart_that_waits_says_so() -> None:
    base = samples.wishing(samples.answering())
    assert base.plan is not None
    session = replace(base.session, change=SplitChange(base.plan, restart=True))
    found = change(replace(base, session=session))
    assert (found.text, found.undo) == ("Then the engine is started again", "Call off")
    assert change(replace(base, session=replace(session, request=None))).title == "The engine is started again"


def test_a_wish_that_does_not_fit_leaves_the_running_split_on_screen() -> None:
    over = samples.over()
    inputs = replace(samples.ready(), plan=None, problem=over.problem, wishes=over.wishes, touched=True)
    view = present(inputs)
    assert view.change is not None and view.change.apply == ""
    assert view.tiles[0] == Tile("Context (KV cache)", "99,584 tokens", "does not fit; 34,048 shown", "error")
    assert view.change.text == "What you chose does not fit."
    unreadable = replace(inputs, shape=None, model_name="other")
    assert change(unreadable).text == "other cannot be read."
    assert view.slider.unmet and view.slider.enabled
    assert not view.strip.two_rows


def test_an_engine_that_hangs_is_called_so_until_it_goes_on() -> None:
    pill = present(samples.stalled()).pill
    assert (pill.text, pill.shape, pill.tone) == ("No answer for over 4 min", "triangle", "warn")
    base = samples.stalled()
    assert present(replace(base, session=replace(base.session, stalled=None))).pill.text == "Answering"
