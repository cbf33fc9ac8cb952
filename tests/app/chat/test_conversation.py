"""Titles, requests, and how much of the cache a chat takes."""

from app.chat.context_use import ContextUse, context_use, estimated_tokens, oldest_to_leave_out
from app.chat.conversation import AnswerEnd, AnswerStats, Conversation, Message, Role, openai_messages, title_of
from app.chat.phrases import meter_line, prefill_line, stats_line, writing_line


def user(number: int, text: str) -> Message:
    return Message(number, Role.USER, text, 0.0)


def answer(number: int, text: str, stats: AnswerStats | None = None) -> Message:
    return Message(number, Role.ASSISTANT, text, 0.0, AnswerEnd.NORMAL, stats)


def test_a_title_is_the_first_eight_words() -> None:
    assert title_of("  one two\nthree four five six seven eight nine") == "one two three four five six seven eight"
    assert title_of("short") == "short"
    assert title_of(" \n ") == "New chat"
    assert title_of("x" * 500) == "x" * 79 + "…"


def test_a_request_alternates_roles_and_leaves_empty_answers_out() -> None:
    messages = [user(1, "first"), answer(2, "  "), user(3, "second"), answer(4, "yes"), user(5, "third")]
    assert openai_messages(messages) == [
        {"role": "user", "content": "first\n\nsecond"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "third"},
    ]


def test_messages_left_out_stay_in_the_chat() -> None:
    chat = Conversation(1, "t", (user(1, "a"), answer(2, "b"), user(3, "c")), sent_from_id=3)
    assert [m.id for m in chat.sent_messages] == [3]
    assert len(chat.messages) == 3


def test_context_use_is_exact_after_an_answer_and_about_while_typing() -> None:
    done = answer(2, "yes", AnswerStats(prompt_tokens=1000, answer_tokens=200))
    assert context_use([user(1, "a"), done]) == ContextUse(1200, about=False)
    assert context_use([user(1, "a"), done], "x" * 400) == ContextUse(1304, about=True)
    assert context_use([user(1, "a" * 40)]) == ContextUse(14, about=True)
    assert context_use([], " \n") == ContextUse(0, about=False)


def test_leaving_out_keeps_the_last_message_and_begins_with_the_user() -> None:
    messages = [user(1, "a" * 4000), answer(2, "b" * 4000), user(3, "c" * 400), answer(4, "d" * 400), user(5, "e")]
    tokens = sum(estimated_tokens(m.text) for m in messages)
    assert oldest_to_leave_out(messages, prompt_tokens=tokens, context_tokens=tokens - 10) == 2
    assert oldest_to_leave_out(messages, prompt_tokens=tokens, context_tokens=200) == 4
    assert oldest_to_leave_out([user(1, "e" * 9000)], prompt_tokens=2254, context_tokens=2048) == 0


def test_the_lines_say_what_is_known_and_nothing_else() -> None:
    full = AnswerStats(prompt_tokens=1204, answer_tokens=486, cached_tokens=1020, ttft_s=2.14, decode_tok_s=9.41)
    assert (
        stats_line(full, AnswerEnd.NORMAL) == "486 tokens · 9.4 tok/s · first token 2.1 s · prompt 1,204 (1,020 cached)"
    )
    assert stats_line(AnswerStats(answer_tokens=1), AnswerEnd.LENGTH) == "Length limit · 1 token"
    assert stats_line(None, AnswerEnd.INTERRUPTED) == "Interrupted"
    empty = AnswerStats(answer_tokens=0, prompt_tokens=2_095)
    assert stats_line(empty, AnswerEnd.NORMAL) == "Empty answer · prompt 2,095"
    assert writing_line(171, 9.4) == "Writing · 171 tokens · 9.4 tok/s"
    assert writing_line(1, None) == "Writing · 1 token"
    assert prefill_line(6144, 28900) == "Reading prompt 6,144 of 28,900"
    assert meter_line(ContextUse(1690, about=False), 33792) == "Context 1,690 of 33,792 tokens"
    assert meter_line(ContextUse(1690, about=True), None) == "Context about 1,690 tokens"
