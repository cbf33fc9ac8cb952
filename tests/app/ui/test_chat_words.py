"""What the Chat page says about the engine and about problems."""

from dataclasses import replace

import pytest

from app.core.session import EngineStage, SessionState, SplitChange
from app.link.stream import NO_ANSWER
from app.ui.pages.chat_words import (
    END_ENGINE,
    LEAVE_OUT,
    SEND_AGAIN,
    START,
    TAKE_BACK,
    engine_notice,
    problem_notice,
    session_line,
    stage_words,
    unanswered_words,
)
from engine.contract.errors import ContextTooLongError, Problem
from tests.app.ui import samples


def test_the_header_counts_what_settled_not_what_was_asked() -> None:
    fallen = samples.settled().session
    assert session_line(fallen).endswith("34,048 tokens · 8 VRAM, 47 pinned, 7 locked")
    assert session_line(replace(fallen, residency=None)).endswith("8 VRAM, 50 pinned, 4 locked")
    assert session_line(samples.loading().session).endswith(" · engine is loading, 59 %")
    assert session_line(SessionState()) == "The engine is stopped"


def test_a_long_name_leaves_room_for_what_is_said_of_the_engine() -> None:
    called = "Qwen3-Next-480B-A35B-Thinking-2507-Instruct-UD-Q4_K_XL-00001-of-00003"
    line = session_line(replace(samples.loading().session, called=called))
    assert line.startswith("Qwen3-Next-") and line.endswith("of-00003 · engine is loading, 59 %")
    assert len(stage_words(replace(samples.ready().session, called=called))) < 50


def test_the_header_says_that_the_split_is_being_changed_and_what_comes_first() -> None:
    answering = samples.answering().session
    assert answering.plan is not None
    change = SplitChange(answering.plan)
    assert session_line(replace(answering, change=change)).endswith(" · the split is changed after this answer")
    assert session_line(replace(answering, change=change, request=None)).endswith(" · the split is changed now")
    restart = replace(answering, change=replace(change, restart=True))
    assert session_line(restart).endswith(" · the engine is started again after this answer")


@pytest.mark.parametrize("stage", list(EngineStage))
def test_every_stage_has_words_and_start_is_offered_only_where_it_helps(stage: EngineStage) -> None:
    state = SessionState(stage=stage)
    assert stage_words(state)
    notice = engine_notice(state)
    if stage is EngineStage.READY:
        assert notice is None
        return
    assert notice is not None
    offered = [action.id for action in notice.actions]
    assert offered == ([START] if stage in (EngineStage.STOPPED, EngineStage.FAILED) else [])


def test_an_engine_that_failed_says_why_where_one_writes() -> None:
    notice = engine_notice(samples.crashed().session)
    assert notice is not None
    assert notice.severity == "error"
    assert "access violation" in notice.title
    assert [action.id for action in notice.actions] == [START]


def test_a_message_that_does_not_fit_is_told_with_both_numbers_and_the_smallest_cure() -> None:
    problem = ContextTooLongError(prompt_tokens=34_120, context_tokens=33_792).problem
    notice = problem_notice(problem, unanswered=True, leave_out_count=2)
    assert notice.title == "This message does not fit"
    assert notice.text == "It needs 34,120 tokens with its history; the KV cache holds 33,792."
    assert [(action.label, action.id) for action in notice.actions] == [
        ("Leave out the 2 oldest messages", LEAVE_OUT),
        ("Take back", TAKE_BACK),
    ]
    without_numbers = problem.model_copy(update={"numbers": {}})
    assert "34120" in problem_notice(without_numbers, unanswered=True, leave_out_count=0).text


def test_another_problem_can_be_tried_again_only_if_the_message_has_no_answer() -> None:
    problem = Problem(kind="wire", sentence="The engine sent something odd.", fix="Send it again.")
    offered = problem_notice(problem, unanswered=True, leave_out_count=0).actions
    assert [action.id for action in offered] == [SEND_AGAIN, TAKE_BACK]
    assert problem_notice(problem, unanswered=False, leave_out_count=0).actions == ()


def test_a_silent_engine_can_be_ended_and_its_last_word_is_shown() -> None:
    problem = Problem(kind=NO_ANSWER, sentence="The engine has not answered for 120 seconds.", fix="Send it again.")
    notice = problem_notice(problem, unanswered=True, leave_out_count=0, last_log_line="prefill 24,576/33,000")
    assert notice.text == "Last line of its log: “prefill 24,576/33,000”. Send it again."
    assert [action.id for action in notice.actions] == [SEND_AGAIN, TAKE_BACK, END_ENGINE]


def test_an_unanswered_message_says_what_it_waits_for() -> None:
    assert unanswered_words("Waits until the engine is ready")[0] == "Waits until the engine is ready"
    text, actions = unanswered_words("")
    assert text == "This message has no answer"
    assert [action for _, action in actions] == [SEND_AGAIN, TAKE_BACK]
