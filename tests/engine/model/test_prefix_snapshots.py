"""Who keeps which snapshots where slots are few: the store against a textbook model, and the laws that follow."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from engine.model.prefix import TAIL_TOKENS
from tests.engine.model.test_prefix import Pool, Tokens

ROOMY = 100_000  # tokens: places are never the reason to forget
GONE_AFTER = 4  # requests a slot


@dataclass(eq=False)
class Chat:
    """A conversation of the textbook: tokens up to its longest snapshot, and at which lengths it has one."""

    tokens: Tokens
    prompt: int
    request: int
    lengths: set[int] = field(default_factory=set)

    def lose_longest(self) -> None:
        self.lengths.remove(max(self.lengths))
        self.tokens = self.tokens[: max(self.lengths, default=0)]


class Textbook:
    """The rule in words, with nothing about places or slot numbers. `chats` are in the order of their last use."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.requests = 0
        self.chats: list[Chat] = []

    def answer(self, prompt: Tokens, answer: Tokens) -> int:
        """A whole request; how many tokens it takes over."""
        self.requests += 1
        found, reused = self._longest(prompt)
        if found is not None and reused >= found.prompt - TAIL_TOKENS:  # the same conversation goes on
            found.lengths = {length for length in found.lengths if length <= reused}
            mine = found
        else:
            if found is not None:
                self._use(found)
            mine = Chat((), 0, 0)
        mine.prompt = len(prompt)
        self._use(mine)
        if len(prompt) - TAIL_TOKENS > reused:
            self._keep(mine, len(prompt) - TAIL_TOKENS)
        self._keep(mine, len(prompt) + len(answer))
        mine.tokens = (*prompt, *answer)[: max(mine.lengths, default=0)]
        self.chats = [chat for chat in self.chats if chat.lengths]
        return reused

    def _longest(self, prompt: Tokens) -> tuple[Chat | None, int]:
        most, best = 0, None
        for chat in reversed(self.chats):
            for length in chat.lengths:
                if most < length < len(prompt) and chat.tokens[:length] == prompt[:length]:
                    most, best = length, chat
        return best, most

    def _use(self, chat: Chat) -> None:
        chat.request = self.requests
        self.chats = [*(other for other in self.chats if other is not chat), chat]

    def _keep(self, mine: Chat, length: int) -> None:
        if length in mine.lengths:
            return
        if len(mine.lengths) == 2:
            mine.lengths.remove(min(mine.lengths))
        if sum(len(chat.lengths) for chat in self.chats) == self.slots and not self._make_room(mine):
            return
        mine.lengths.add(length)

    def _make_room(self, mine: Chat) -> bool:
        others = [chat for chat in self.chats if chat.lengths and chat is not mine]
        rich = [chat for chat in others if len(chat.lengths) == 2]
        gone = [chat for chat in others if self.requests - chat.request >= GONE_AFTER * self.slots]
        if loser := next(iter([*rich, *gone, *(() if mine.lengths else others)]), None):
            loser.lose_longest()
            return True
        if max(mine.lengths) < mine.prompt - TAIL_TOKENS:
            mine.lengths.clear()
            return True
        return False


@dataclass(frozen=True)
class Request:
    """The next turn of a chat. `same`: the client sends the answer back in the same tokens."""

    chat: int
    question: int
    answer: int
    same: bool


requests = st.builds(Request, st.integers(0, 5), st.integers(1, 30), st.integers(0, 12), st.booleans())


def _history(asked: list[Request]) -> Iterator[tuple[int, Tokens, Tokens]]:
    """Chat, prompt and answer of each request; chats share a beginning of 5 tokens."""
    told: dict[int, Tokens] = {}
    for number, request in enumerate(asked):
        before = told.get(request.chat, (7,) * 5)
        prompt = (*before, *range(1000 * number, 1000 * number + request.question))
        answer = tuple(range(1000 * number + 500, 1000 * number + 500 + request.answer))
        told[request.chat] = (*prompt, *(answer if request.same else (number,) * request.answer))
        yield request.chat, prompt, answer


@given(slots=st.integers(1, 9), asked=st.lists(requests, min_size=1, max_size=40))
def test_what_is_reused_is_what_the_textbook_says(slots: int, asked: list[Request]) -> None:
    pool, textbook = Pool(ROOMY, slots), Textbook(slots)
    for _, prompt, answer in _history(asked):
        assert pool.answer(prompt, answer) == textbook.answer(prompt, answer)


class Watched(Pool):
    """Looks at every single snapshot whom it costs what."""

    @override
    def keep_state(self) -> None:
        others = {one: len(one.snapshots) for one in self.store._all() if one is not self.store._current}
        super().keep_state()
        ended = [one for one, count in others.items() if count and not one.snapshots]
        assert not ended or set(others.values()) <= {0, 1}
        assert len(ended) <= 1
        assert self.slots is not None
        assert sum(_kept(self).values()) <= self.slots


@given(slots=st.integers(1, 9), asked=st.lists(requests, min_size=1, max_size=30))
def test_nobody_loses_the_last_snapshot_while_somebody_has_two(slots: int, asked: list[Request]) -> None:
    pool = Watched(ROOMY, slots)
    for _, prompt, answer in _history(asked):
        pool.answer(prompt, answer)


def _kept(pool: Pool) -> dict[Tokens, int]:
    """Snapshots of each sequence."""
    return {tuple(one.tokens): len(one.snapshots) for one in pool.store._all() if one.snapshots}


@given(
    slots=st.integers(1, 9),
    turns=st.lists(st.tuples(st.integers(10, 40), st.integers(0, 12)), min_size=2, max_size=8),
    same=st.booleans(),
    data=st.data(),
)
def test_as_many_chats_as_there_are_slots_go_on_after_their_last_prompt(
    slots: int, turns: list[tuple[int, int]], same: bool, data: st.DataObject
) -> None:
    """In any order, whether or not answers come back as they were."""
    pool = Pool(ROOMY, slots)
    order = [data.draw(st.permutations(range(slots))) for _ in turns]
    asked = [
        Request(chat, question, answer, same)
        for (question, answer), chats in zip(turns, order, strict=True)
        for chat in chats
    ]
    last: dict[int, int] = {}
    for chat, prompt, answer in _history(asked):
        reused = pool.answer(prompt, answer)
        assert reused >= last.get(chat, 0)
        last[chat] = len(prompt) - TAIL_TOKENS


@pytest.mark.parametrize("slots", [4, 6])
def test_three_chats_in_turn_all_go_on(slots: int) -> None:
    """Six slots keep their answers too; with four slots the answers of two of them are computed again."""
    pool = Pool(ROOMY, slots)
    asked = [Request(chat, 20, 10, same=True) for _ in range(4) for chat in range(3)]
    computed = [len(prompt) - pool.answer(prompt, answer) for _, prompt, answer in _history(asked)]
    assert computed[:3] == [25, 25, 25]
    assert max(computed[3:]) <= 20 + 10 + TAIL_TOKENS
    if slots == 6:
        assert set(computed[3:]) == {20}


def test_a_chat_that_did_not_come_back_for_long_makes_room_for_a_second_snapshot() -> None:
    pool = Pool(ROOMY, 2)
    old, new = (1,) * 30, tuple(range(100, 130))
    pool.answer(old, (5,))
    pool.answer(new, (6,))
    assert set(_kept(pool).values()) == {1}
    for _ in range(GONE_AFTER * 2 - 2):
        pool.answer(new, (6,))
    assert set(_kept(pool).values()) == {1}
    pool.answer(new, (6,))
    assert _kept(pool) == {(*new, 6): 2}


def test_many_short_questions_of_others_take_nothing_from_a_chat_that_goes_on() -> None:
    """Clients ask for a title after every turn."""
    pool = Pool(ROOMY, 4)
    chat: Tokens = tuple(range(40))
    pool.answer(chat, (1, 2))
    for turn in range(6):
        for title in range(2):
            pool.answer((900 + turn, title, *range(30)), (3,))
        longer = (*chat, 1, 2, *range(200 + 10 * turn, 210 + 10 * turn))
        assert pool.answer(longer, (1, 2)) >= len(chat) - TAIL_TOKENS
        chat = longer
