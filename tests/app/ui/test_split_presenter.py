"""What the Split page shows in each state, without Qt."""

import subprocess
import sys
from dataclasses import replace

import pytest

from app.core.session import EngineStage, ReadSpan, SessionState
from app.planning.wishes import Wishes
from app.ui.split_inputs import LeftOver, SplitInputs
from app.ui.split_presenter import NO_GPU, present
from app.ui.split_view import Marker, Tile
from engine.contract.events import Loading
from engine.contract.ledger import UNPACKED_KV
from engine.contract.plan import LedgerLine, Pool, Tier
from engine.contract.units import GIB
from tests.app.ui import samples


def tiles(inputs: SplitInputs) -> dict[str, Tile]:
    return {tile.caption: tile for tile in present(inputs).tiles}


def test_making_a_view_loads_no_qt() -> None:
    code = "import sys, app.ui.split_presenter, app.ui.split_notices, app.ui.tray_view; print('PySide6' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_four_numbers_say_where_every_layer_goes() -> None:
    shown = tiles(samples.stopped())
    assert shown["Context (KV cache)"] == Tile("Context (KV cache)", "34,048 tokens", "8.1 GiB KV cache")
    assert (shown["Layers in VRAM"].value, shown["Layers in VRAM"].detail) == ("8", "15.2 GiB")
    assert (shown["Pinned layers"].value, shown["Pinned layers"].detail) == ("50", "94.9 of 95.6 GiB quota")
    assert shown["Locked layers"].detail == "7.6 GiB on the CPU"


def test_an_assumed_quota_says_so_beside_the_number() -> None:
    assert tiles(samples.unknown_quota())["Pinned layers"].detail == "75.9 of 76.7 GiB (assumed)"
    assert present(samples.unknown_quota()).slider.assumed


def test_the_slider_speaks_all_of_the_split() -> None:
    slider = present(samples.stopped()).slider
    assert slider.described == "34,048 tokens of context, 8 in VRAM, 50 pinned, 4 locked"
    assert (slider.stops, slider.position, slider.enabled) == (12, 3, True)


def test_a_quota_that_is_full_at_the_left_end_names_the_most_it_takes() -> None:
    assert present(samples.stopped()).slider.markers == (Marker(0, "pin", "Pin quota full: 50 layers at most"),)


def test_limits_inside_the_range_are_places_on_the_slider() -> None:
    markers = present(samples.over()).slider.markers
    assert [(marker.stop, marker.kind) for marker in markers] == [(4, "pin"), (10, "ram")]
    assert markers[0].label == "Pin quota full at 50 layers"


def test_without_a_plan_the_engine_cannot_be_started_and_the_reason_is_on_the_button() -> None:
    view = present(samples.over())
    assert not view.button.enabled
    assert view.button.hint == "This split needs 177.0 GiB of RAM; 173.2 GiB can be used."
    assert view.slider.unmet
    assert view.slider.enabled, "the slider is the way out"


def test_layers_that_do_not_fit_are_drawn_pageable_and_called_by_number() -> None:
    tile = tiles(samples.over())["Locked layers"]
    assert (tile.value, tile.detail, tile.tone) == ("10 + 2", "2 layers do not fit in RAM", "error")
    assert present(samples.over()).strip.count(Tier.PAGEABLE) == 2


def test_while_loading_the_strip_fills_cell_by_cell() -> None:
    view = present(samples.loading(35))
    fills = [cell.fill for cell in view.strip.cells]
    assert fills[:35] == [1.0] * 35
    assert fills[35] == pytest.approx(0.5, abs=0.01)
    assert fills[36:] == [0.0] * 26
    assert view.strip.note == "Reading layer 36 of 62 · 2.5 GiB/s · 72.8 of 123.1 GiB · about 20 s left"
    assert view.pill.text == "Loading 59 %"
    assert (view.button.text, view.button.action) == ("Cancel", "stop")
    assert not view.slider.enabled
    assert not view.pinned.enabled


def test_a_rate_is_not_guessed_from_the_first_moment() -> None:
    inputs = samples.loading(0)
    assert inputs.loading is not None
    young = ReadSpan(from_s=9.0, until_s=9.2, from_bytes=0, until_bytes=GIB)
    assert "GiB/s" not in present(replace(inputs, session=replace(inputs.session, reading=young))).strip.note


@pytest.mark.parametrize("stage", ["starting", "dense", "cache", "checking"])
def test_every_stage_of_loading_has_its_words(stage: str) -> None:
    inputs = samples.loading(0)
    assert inputs.loading is not None
    note = present(replace(inputs, loading=Loading.model_validate({**inputs.loading.model_dump(), "stage": stage})))
    assert note.strip.note
    assert "layer 1 of" not in note.strip.note


def test_an_engine_that_got_what_it_asked_for_says_so_with_the_time() -> None:
    view = present(samples.ready())
    assert view.strip.note.startswith("Granted as asked. Loaded in ")
    assert not view.strip.two_rows
    assert view.memory_note == "Reported by the engine at 14:06. Self-test passed."
    assert view.memory_hint == "layer 8 agrees between GPU and CPU", "the figures are in the tool tip"
    assert view.pill.text == "Ready"


def test_asked_and_settled_are_both_shown_until_they_agree() -> None:
    view = present(samples.settled())
    assert view.strip.two_rows
    changed = [cell.layer for cell in view.strip.cells if cell.tier is not cell.asked]
    assert changed == [55, 56, 57]
    assert all(cell.cause for cell in view.strip.cells if cell.layer in changed)
    shown = {tile.caption: tile for tile in view.tiles}
    assert (shown["Pinned layers"].value, shown["Pinned layers"].detail) == ("47", "asked for 50 · 89.2 GiB")
    assert (shown["Locked layers"].value, shown["Locked layers"].tone) == ("7", "warn")
    assert (view.pill.text, view.pill.shape) == ("Ready, split changed", "triangle")


def test_the_rate_counts_the_reading_only_and_not_the_start_of_the_program() -> None:
    base = samples.ready()
    reading = ReadSpan(from_s=30.0, until_s=40.0, from_bytes=0, until_bytes=25 * GIB)
    note = present(replace(base, session=replace(base.session, reading=reading))).strip.note
    assert note.endswith(", read at 2.5 GiB/s.")
    loading = samples.loading(35)
    session = replace(loading.session, reading=reading)
    assert " · 2.5 GiB/s · " in present(replace(loading, session=session)).strip.note


def test_a_load_that_is_stopped_keeps_what_was_read_until_it_is_gone() -> None:
    base = samples.loading(35)
    view = present(replace(base, session=replace(base.session, stage=EngineStage.STOPPING)))
    assert [cell.fill for cell in view.strip.cells][:37] == pytest.approx([1.0] * 35 + [0.5, 0.0], abs=0.01)


def test_where_everything_fits_there_is_nothing_to_slide_and_nothing_to_pin() -> None:
    plan = samples.plan_of(samples.DEMO, 30, 0, context=8_192)
    view = present(replace(samples.stopped(), shape=samples.DEMO, plan=plan, stops=samples.stops_of((8_192,))))
    assert view.slider.captions[0].startswith("Nothing to trade")
    assert not view.slider.enabled
    assert not view.pinned.visible


def test_an_engine_that_answers_says_so() -> None:
    assert present(samples.answering()).pill.text == "Answering"


def test_a_stopping_engine_cannot_be_stopped_again() -> None:
    base = samples.ready()
    session = replace(base.session, stage=EngineStage.STOPPING)
    assert not present(replace(base, session=session)).button.enabled


def test_a_start_that_is_on_its_way_is_shown_at_once() -> None:
    view = present(replace(samples.stopped(), starting=True))
    assert (view.pill.text, view.pill.share) == ("Starting", None)
    assert (view.button.text, view.button.enabled) == ("Start engine", False)


def test_after_an_error_the_same_split_can_be_started() -> None:
    view = present(samples.crashed())
    assert (view.pill.shape, view.button.action, view.button.enabled) == ("cross", "start", True)
    assert all(cell.fill == 1 for cell in view.strip.cells), "the strip shows the plan again, not the failed load"


def test_without_a_gpu_everything_is_locked_and_only_ram_is_shown() -> None:
    view = present(samples.no_gpu())
    assert view.tags == (NO_GPU,)
    assert "GPU" not in view.subtitle
    assert [bar.title for bar in view.bars] == ["RAM"]
    assert not view.pinned.visible
    assert view.slider.captions == ("Less context", "More context")
    assert [tile.caption for tile in view.tiles] == ["Context (KV cache)", "Layers in RAM", "RAM for this split"]
    assert view.button.enabled, "the program works without a GPU"


def test_a_simulated_gpu_and_a_recorded_machine_are_labelled() -> None:
    assert [tag.text for tag in present(samples.simulated()).tags] == ["Simulated GPU"]
    recorded = replace(samples.stopped(), facts=samples.BIG.model_copy(update={"recorded": True}))
    assert [tag.text for tag in present(recorded).tags] == ["Recorded machine: 192 GB desktop with an RTX 5090"]
    assert present(samples.stopped()).tags == ()


def test_room_in_which_fp8_is_unpacked_is_shown_beside_the_kv_cache() -> None:
    inputs = samples.stopped()
    assert inputs.plan is not None
    unpacked = LedgerLine(pool=Pool.VRAM, what=UNPACKED_KV, bytes=GIB)
    plan = inputs.plan.model_copy(update={"ledger": (*inputs.plan.ledger, unpacked)})
    vram = present(replace(inputs, plan=plan)).bars[0]
    assert [(part.name, part.kind) for part in vram.segments if part.kind == "kv"] == [
        ("KV cache", "kv"),
        ("Unpacked KV", "kv"),
    ]


def test_bars_add_up_to_the_plan_and_what_others_use() -> None:
    inputs = samples.stopped()
    assert inputs.plan is not None
    vram, pinned, ram = present(inputs).bars
    assert [segment.name for segment in vram.segments if segment.bytes] == [
        "Other apps",
        "Weights",
        "Runtime",
        "KV cache",
        "Expert slots",
        "Expert layers",
    ]
    other = int(0.9 * GIB)
    assert vram.used_bytes == other + sum(x.bytes for x in inputs.plan.ledger if x.pool.value == "vram")
    assert vram.limit_bytes == other + 30 * GIB
    assert not vram.over
    assert pinned.note == "measured today 14:02"
    assert ram.total_bytes == int(191.7 * GIB)


def test_memory_of_a_left_over_process_is_a_segment_of_its_own() -> None:
    vram, _, ram = present(samples.orphan()).bars
    for bar, size in ((vram, 14.2), (ram, 28.9)):
        held = {segment.name: segment.bytes for segment in bar.segments}
        assert held["Left-over process"] == int(size * GIB)
    assert {segment.name: segment.bytes for segment in vram.segments}["Other apps"] == pytest.approx(
        0.9 * GIB, rel=0.01
    )


def test_pins_of_a_left_over_process_take_their_part_of_the_quota() -> None:
    held = replace(samples.QUOTA, bytes=int(66.7 * GIB), held_bytes=int(29.0 * GIB))
    inputs = replace(samples.orphan(), quota=held, left_over=LeftOver(pinned_bytes=int(28.9 * GIB)))
    [quota] = [bar for bar in present(inputs).bars if bar.title == "Pinned quota"]
    parts = {segment.name: segment.bytes for segment in quota.segments}
    assert parts["Left-over process"] == int(28.9 * GIB)
    assert parts["Other apps"] == held.held_bytes - int(28.9 * GIB)
    assert quota.total_bytes == held.bytes + held.held_bytes


def test_after_a_refusal_the_quota_is_what_was_granted_and_says_what_it_was() -> None:
    refused, as_asked = (
        next(bar for bar in present(inputs).bars if bar.title == "Pinned quota")
        for inputs in (samples.settled(), samples.ready())
    )
    assert refused.note == "refused above this at 14:06 (was 95.6 GiB)"
    assert refused.used_bytes == refused.total_bytes
    assert as_asked.note == "measured today 14:02"


def test_the_commit_charge_is_shown_only_near_its_limit() -> None:
    from engine.contract.facts import Reading, Source

    def facts(used_gib: int) -> SplitInputs:
        update = {
            "commit_limit": Reading(value=204 * GIB, source=Source.READ),
            "commit_used": Reading(value=used_gib * GIB, source=Source.READ),
        }
        return replace(samples.stopped(), facts=samples.BIG.model_copy(update=update))

    assert [bar.title for bar in present(facts(20)).bars] == ["VRAM", "Pinned quota", "RAM"]
    assert [bar.title for bar in present(facts(90)).bars][-1] == "Commit"


def test_quick_marks_are_contexts_the_model_and_the_slider_reach() -> None:
    marks = {mark.label: mark.context_tokens for mark in present(samples.stopped()).quick_marks}
    assert marks == {"8k": 8192, "32k": 32768, "64k": 65536, "Largest that fits": None}
    small = [mark.label for mark in present(samples.no_gpu()).quick_marks]
    assert small == ["Largest that fits"], "8k is the largest, and one thing has one name"
    assert present(samples.loading()).quick_marks == ()


def test_no_model_and_an_unreadable_model_have_no_cards_and_no_start() -> None:
    assert present(SplitInputs()).pill.text == "No model"
    view = present(samples.unreadable())
    assert view.pill.text == "Model not readable"
    assert not view.strip.cells
    assert not view.button.enabled


def test_a_wish_beyond_every_stop_keeps_its_number_and_hollows_the_handle() -> None:
    base = samples.over()
    inputs = replace(base, wishes=Wishes(context_tokens=150_016), drawn=samples.stopped().plan)
    view = present(inputs)
    assert view.slider.unmet
    assert view.slider.position == len(samples.CONTEXTS) - 1
    assert view.tiles[0].value == "150,016 tokens"
    assert view.tiles[0].tone == "error"


def test_the_plan_that_was_sent_is_shown_while_the_engine_runs() -> None:
    base = samples.ready()
    other = samples.plan_of(samples.MINIMAX, 1, 50, context=58_624)
    view = present(replace(base, plan=other, stops=samples.stops_of(samples.CONTEXTS)))
    assert view.tiles[0].value == "34,048 tokens"


def test_a_session_without_news_is_starting() -> None:
    base = samples.stopped()
    view = present(replace(base, session=SessionState(stage=EngineStage.STARTING, plan=base.plan)))
    assert view.pill.text == "Starting"
    assert view.pill.share is None, "how far it is cannot be told, so the arc turns"
    assert view.strip.waits
    assert all(cell.fill == 0 for cell in view.strip.cells)
