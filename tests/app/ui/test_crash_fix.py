"""One button for each way an engine ends: what it does, and that nothing impossible is offered."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.core.session import EngineStage
from app.supervision.exit_words import explain_end
from app.ui.crash_fix import CrashFix, crash_fix
from app.ui.split_inputs import SplitInputs
from app.ui.split_plan import Question
from engine.contract.errors import FixOption, Problem
from tests.app.ui import samples

QUESTION = Question(samples.MINIMAX, samples.BIG, samples.stopped().wishes, Path("/models/sample"))


def _after(problem: Problem, *, plan: bool = True) -> SplitInputs:
    base = samples.pins_refused()
    session = replace(base.session, problem=problem)
    return replace(base, session=session, plan=base.plan if plan else None)


def _label(problem: Problem, *, windows: bool = True, plan: bool = True) -> str | None:
    found = crash_fix(_after(problem, plan=plan), QUESTION, can_open_page_file=windows)
    return None if found is None else found.action.label


@pytest.mark.parametrize(
    ("exit_code", "log", "label"),
    [
        (1, "cudaHostRegister failed: out of memory", "Start with 40 pinned layers"),
        (0xC000012D, "", "Open page-file settings"),
        (0xC0000135, "", "Copy details"),
        (1, "ImportError: DLL load failed while importing torch", "Copy details"),
        (0xC000001D, "", "Copy details"),
        (1, "[WinError 10048] address already in use", "Use any free port"),
        (0xC0000005, "", "Start again"),
        (-9, "", "Start again"),
    ],
)
def test_each_cause_has_the_button_that_mends_it(exit_code: int, log: str, label: str) -> None:
    assert _label(explain_end(exit_code, (log,)).problem) == label


def test_after_the_gpu_was_full_the_start_is_a_smaller_one() -> None:
    found = crash_fix(_after(explain_end(1, ("CUDA out of memory",)).problem), QUESTION, can_open_page_file=False)
    assert found is not None
    assert found.action.id == "start_with"
    assert "vram_reserve_bytes" in found.wishes


def test_the_notice_tells_how_much_was_pinned_before_the_refusal() -> None:
    found = crash_fix(samples.pins_refused(), QUESTION, can_open_page_file=False)
    assert found is not None
    assert found.wishes == {"pinned_layers": 40}, "41 were pinned; the quota of now allows 40"
    assert found.saw == "41 layers (77.8 GiB) were pinned before that; 50 layers were to be."


def test_a_taken_port_is_answered_by_another_one() -> None:
    port = FixOption(change="port", sentence="Use port 1920", numbers={"port": 1920})
    assert _label(Problem(kind="port", sentence="", fix="", fixes=(port,))) == "Use port 1920"


def test_a_changed_model_is_started_with_the_plan_that_was_made_anew() -> None:
    problem = Problem(kind="model_changed", sentence="", fix="Plan again.")
    found = crash_fix(_after(problem), QUESTION, can_open_page_file=True)
    assert found is not None
    assert (found.action.id, found.wishes) == ("start", {})
    assert "planned anew" in found.done
    assert _label(problem, plan=False) is None


def test_without_a_system_that_shows_its_page_file_one_can_only_try_again() -> None:
    assert _label(explain_end(0xC000012D, ()).problem, windows=False) == "Start again"


def test_nothing_is_offered_that_cannot_be_started() -> None:
    assert _label(explain_end(-9, ()).problem, plan=False) is None
    stopped: CrashFix | None = crash_fix(samples.stopped(), QUESTION, can_open_page_file=True)
    assert stopped is None
    running = replace(samples.pins_refused().session, stage=EngineStage.LOADING)
    assert crash_fix(replace(samples.pins_refused(), session=running), QUESTION, can_open_page_file=True) is None
