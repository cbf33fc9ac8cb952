"""Banners in words."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from app.core.measuring import Measuring
from app.orphans.verdicts import Confidence, Orphan
from app.planning.wishes import Wishes
from app.ui import notices
from app.ui.crash_fix import crash_fix
from app.ui.notices import Action, Notice
from app.ui.split_inputs import QuotaFacts, SplitInputs
from app.ui.split_notices import NoticeInputs, compose, fix_of, granted_pin_bytes
from engine.contract.errors import FixOption, NotEnoughRamError
from engine.contract.events import StepStalled
from engine.contract.facts import Source
from engine.contract.processes import ProcessIdentity
from engine.contract.units import GIB
from tests.app.ui import samples

NOW = datetime(2026, 9, 1, 14, 6)


def an_orphan(
    confidence: Confidence = "ours",
    pids: tuple[int, ...] = (18244,),
    *,
    started: datetime = NOW - timedelta(minutes=25),
) -> Orphan:
    return Orphan(
        pids=pids,
        identities=tuple(ProcessIdentity(pid=pid, create_time=started.timestamp()) for pid in pids),
        name="python.exe",
        command_line="python.exe -m engine serve plan.json",
        reason="Its parent process is gone.",
        confidence=confidence,
        preselected=confidence == "ours",
        rss_bytes=int(28.9 * GIB),
        gpu_bytes=int(14.2 * GIB),
        age_s=1500,
    )


def test_at_most_two_banners_errors_first() -> None:
    info, warn, error, late = Notice("info", "a"), Notice("warn", "b"), Notice("error", "c"), Notice("error", "d")
    assert notices.shown((info, warn, error)) == (error, warn)
    assert notices.shown((info, error, late)) == (error, late)


def test_a_problem_keeps_its_own_words_and_its_numbers() -> None:
    problem = NotEnoughRamError(needed_bytes=10 * GIB, available_bytes=8 * GIB, fix="Close other programs.").problem
    notice = notices.of_problem(problem, Action("Try", "try", "primary"))
    assert notice.title == "This split needs 10.0 GiB of RAM; 8.0 GiB can be used"
    assert notice.text == "Close other programs."
    assert "kind: ram" in notice.details
    assert "short by: 2,147,483,648 bytes" in notice.details
    assert "needed_bytes: 10,737,418,240" in notice.details


def test_a_left_over_process_is_shown_with_pid_start_bytes_and_gain() -> None:
    notice = notices.of_orphan(an_orphan(), NOW, "Without it, 7 more layers fit in VRAM.")
    assert notice.title == "An engine process from an earlier run still holds memory"
    assert notice.text == (
        "python.exe, PID 18244. Started 13:41. Its parent process is gone. It holds 14.2 GiB of VRAM and 28.9 GiB of "
        "RAM. Without it, 7 more layers fit in VRAM."
    )
    assert [action.label for action in notice.actions] == ["End process"]


def test_about_what_a_left_over_process_has_pinned_is_said() -> None:
    pins = an_orphan().model_copy(update={"gpu_shared_bytes": int(20.5 * GIB)})
    text = notices.of_orphan(pins, NOW).text
    assert "It holds 14.2 GiB of VRAM and 28.9 GiB of RAM; about 20.5 GiB of RAM are pinned." in text


def test_a_tree_is_ended_as_a_whole_and_the_button_says_how_many() -> None:
    notice = notices.of_orphan(an_orphan(pids=(7, 8, 9)), NOW)
    assert notice.actions[0].label == "End 3 processes"
    assert "2 of its children" in notice.text


def test_a_process_of_yesterday_is_dated() -> None:
    old = an_orphan(started=NOW - timedelta(days=1))
    assert "Started 2026-08-31 14:06" in notices.of_orphan(old, NOW).text


def test_the_start_of_a_process_is_the_same_whenever_it_is_told() -> None:
    assert notices.of_orphan(an_orphan(), NOW).text == notices.of_orphan(an_orphan(), NOW + timedelta(seconds=59)).text


def test_a_process_that_is_being_ended_offers_no_second_end() -> None:
    notice = notices.of_orphan(an_orphan(), NOW, ending=True)
    assert notice.actions == ()
    assert "waits for its memory" in notice.text


def test_a_process_that_may_be_somebody_elses_is_not_called_ours() -> None:
    assert notices.of_orphan(an_orphan("possible"), NOW).title == "A process may be left over"


def titles(inputs: NoticeInputs) -> list[str]:
    return [notice.title for notice in compose(inputs)]


def test_a_split_that_does_not_fit_offers_the_largest_that_does() -> None:
    found = compose(NoticeInputs(samples.over(), NOW, largest_context=91_392))
    assert found[0].actions == (Action("Use 91,392 tokens", "largest", "primary"),)
    assert not found[0].dismissable, "it goes when it is fixed"


def test_a_shortfall_of_pins_is_said_by_layer_and_offers_to_use_what_was_granted() -> None:
    (found,) = compose(NoticeInputs(samples.settled(), NOW))
    assert found.title == "The engine is running, but it pinned 3 layers fewer than you asked for"
    assert found.text.startswith(
        "Layers 55 to 57 are locked instead and computed on the CPU. The quota is now 89.2 GiB."
    )
    assert found.actions[0].label == "Use 89.2 GiB from now on"
    assert "layer 55: asked pinned, settled locked" in found.details


def test_a_limit_that_the_user_set_answers_the_shortfall_and_can_be_taken_back() -> None:
    granted = granted_pin_bytes(samples.settled())
    assert granted is not None
    limited = replace(samples.settled(), wishes=Wishes(pin_cap_bytes=granted))
    (found,) = compose(NoticeInputs(limited, NOW))
    assert (found.severity, found.title) == ("info", "Splitpin pins at most 89.2 GiB, as you chose")
    assert found.text == "It counts from the next change or start."
    assert found.actions == (Action("Remove this limit", "lift_limit"),)
    higher = replace(samples.settled(), wishes=Wishes(pin_cap_bytes=granted + GIB))
    assert len(compose(NoticeInputs(higher, NOW))) == 2, "less was granted than the limit"


def failed(inputs: SplitInputs) -> Notice:
    """The notice of an engine that stopped by an error."""
    fix = crash_fix(inputs, None, can_open_page_file=False)
    return compose(NoticeInputs(inputs, NOW, crash_fix=fix))[0]


def test_a_failed_engine_offers_its_log_where_there_is_one() -> None:
    inputs = samples.crashed()
    assert inputs.session.problem is not None
    assert [action.label for action in failed(inputs).actions] == ["Start again"]
    numbers = {**inputs.session.problem.numbers, "log_file": "/runs/1/engine.log"}
    problem = inputs.session.problem.model_copy(update={"numbers": numbers})
    logged = replace(inputs, session=replace(inputs.session, problem=problem))
    assert [action.label for action in failed(logged).actions] == ["Start again", "Open log"]


def _fix(change: str, sentence: str, **numbers: int) -> FixOption:
    return FixOption(change=change, sentence=sentence, numbers=numbers)


def test_changes_of_the_page_that_cure_a_refusal_are_buttons_and_all_of_them_are_told() -> None:
    fixes = (
        _fix("context_tokens", "Choose a context of at most 8,192 tokens.", context_tokens=8192),
        _fix("vram_layers", "Keep 3 layers in VRAM.", vram_layers=3),
        _fix("end_process", "End python.exe (PID 7), which holds 3.0 GiB of RAM.", end_pid=7),
        _fix("free_ram", "Close other programs.", ram_available_bytes=GIB),
    )
    over = samples.over()
    assert over.problem is not None
    problem = over.problem.model_copy(update={"fix": fixes[0].sentence, "fixes": fixes})
    notice = compose(NoticeInputs(replace(over, problem=problem), NOW, largest_context=4096))[0]
    assert notice.actions == (
        Action("Use 8,192 tokens", "fix_context_tokens", "primary"),
        Action("End process 7", "fix_end_process", "danger"),
    )
    assert notice.text.endswith(
        "Or: keep 3 layers in VRAM. Or: end python.exe (PID 7), which holds 3.0 GiB of RAM. Or: close other programs."
    )
    assert fix_of(replace(over, problem=problem), "fix_end_process") == fixes[2]
    assert fix_of(replace(over, problem=problem), "fix_pinned_layers") is None


@pytest.mark.parametrize(
    ("change", "number", "label"),
    [
        ("vram_layers", 3, "Keep 3 layers in VRAM"),
        ("pinned_layers", 1, "Pin 1 layer"),
        ("ram_reserve_bytes", 2 * GIB, "Reserve 2.0 GiB"),
        ("allow_pageable", "yes", "Allow pageable layers"),
        ("kv_dtype", "fp8", "Keep the KV cache in fp8"),
        ("free_ram", GIB, "Check again"),
    ],
)
def test_each_kind_of_change_has_its_button(change: str, number: int | str, label: str) -> None:
    over = samples.over()
    assert over.problem is not None
    fix = FixOption(change=change, sentence="Do it.", numbers={change: number})
    problem = over.problem.model_copy(update={"fixes": (fix,)})
    notice = compose(NoticeInputs(replace(over, problem=problem), NOW))[0]
    assert [(action.label, action.kind) for action in notice.actions] == [(label, "primary")]


def test_a_folder_that_cannot_be_read_can_be_read_again_or_leave_the_list() -> None:
    assert [action.id for action in compose(NoticeInputs(samples.unreadable(), NOW))[0].actions] == ["read_again"]
    added = compose(NoticeInputs(samples.unreadable(), NOW, removable=True))[0]
    assert [action.id for action in added.actions] == ["read_again", "remove"]


def test_an_assumed_quota_is_said_once_and_not_while_the_engine_runs() -> None:
    assert titles(NoticeInputs(samples.unknown_quota(), NOW)) == [
        "The pinned-memory quota of this PC is not measured yet"
    ]
    assert titles(NoticeInputs(samples.stopped(), NOW)) == []
    assert titles(NoticeInputs(samples.ready(), NOW)) == []
    measuring = replace(samples.unknown_quota(), measuring=Measuring("pins"))
    assert titles(NoticeInputs(measuring, NOW)) == []


def test_a_quota_that_nobody_tried_can_be_measured_by_a_click_and_says_what_that_takes() -> None:
    found = compose(NoticeInputs(samples.unknown_quota(), NOW))[0]
    assert found.actions == (Action("Measure now", "measure", "primary"),)
    assert found.text == (
        "The system names a limit of 95.9 GiB, but drivers often refuse earlier. Splitpin plans with 76.7 GiB (40 % of "
        "RAM) until you measure. Measuring takes up to a minute and frees everything again."
    )
    read = replace(samples.unknown_quota(), quota=QuotaFacts(50 * GIB, Source.READ))
    assert compose(NoticeInputs(read, NOW))[0].actions == found.actions, "a reading is no trial"
    facts = samples.BIG.model_copy(update={"recorded": True})
    recorded = compose(NoticeInputs(replace(samples.unknown_quota(), facts=facts), NOW))
    assert [notice.actions for notice in recorded if notice.about == "quota"] == [()]


def test_a_refused_start_offers_to_end_the_process_or_to_start_anyway() -> None:
    found = compose(NoticeInputs(samples.orphan(), NOW, orphans=(an_orphan(),), refused=True))
    assert found[0].severity == "error"
    assert [action.label for action in found[0].actions] == ["End process", "Start anyway"]


def test_ending_a_process_that_is_not_provably_ours_asks_once_with_its_command_line() -> None:
    possible = an_orphan("possible")
    found = compose(NoticeInputs(samples.orphan(), NOW, orphans=(possible,), asked=possible))
    assert "python.exe -m engine serve plan.json" in found[0].text
    assert [action.id for action in found[0].actions] == ["end_asked", "keep"]


def test_a_model_that_can_only_be_planned_says_why() -> None:
    shape = samples.MINIMAX.model_copy(update={"source": "config"})
    assert titles(NoticeInputs(replace(samples.stopped(), shape=shape), NOW)) == [
        "This folder holds no weight files; the plan is made from config.json alone"
    ]


def test_texts_are_plain() -> None:
    every = [samples.over(), samples.settled(), samples.crashed(), samples.unknown_quota(), samples.unreadable()]
    for inputs in every:
        fix = crash_fix(inputs, None, can_open_page_file=True)
        known = NoticeInputs(inputs, NOW, largest_context=4096, orphans=(an_orphan(),), crash_fix=fix)
        for notice in compose(known):
            said = f"{notice.title} {notice.text} {' '.join(a.label for a in notice.actions)}".lower()
            assert not any(word in said for word in ("!", "sorry", "please", "oops", "went wrong", "kill"))


def test_a_step_that_does_not_end_is_said_and_ending_the_engine_is_offered() -> None:
    ready = samples.settled()
    stalled = StepStalled(request_id="a", phase="decode", running_s=250, limit_s=120)
    notice = next(
        one
        for one in compose(NoticeInputs(replace(ready, session=replace(ready.session, stalled=stalled)), NOW))
        if one.about == "stalled"
    )
    assert notice.title == "The engine has not finished a step for 4 min 10 s"
    assert "It computes one token; by what was measured on this PC that takes less than 2 min 0 s." in notice.text
    assert [action.id for action in notice.actions] == ["end_engine"]


def test_books_that_do_not_agree_are_said_with_the_numbers() -> None:
    ready = samples.settled()
    findings = ("3 slots are taken and 2 are free; there are 4.", "5 B too much.")
    found = compose(NoticeInputs(replace(ready, session=replace(ready.session, findings=findings)), NOW))
    notice = next(one for one in found if one.about == "integrity")
    assert notice.severity == "error"
    assert notice.text.startswith("3 slots are taken and 2 are free; there are 4. 1 more are in the log.")
    assert notice.details == "\n".join(findings)
