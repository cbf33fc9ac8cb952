"""The prefix store against a naive model: a row of places that the moves are really made in."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.prefix import TAIL_TOKENS, Move, PrefixStore

Tokens = tuple[int, ...]


@dataclass
class Pool:
    """The places, and the slots with the sequence whose state was copied there. Every promise is checked."""

    capacity: int
    slots: int | None = None
    row: list[int | None] = field(default_factory=list)
    states: dict[int, Tokens] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = PrefixStore(self.capacity, slots=self.slots)
        self.row = [None] * self.capacity

    def begin(self, prompt: Sequence[int]) -> int:
        """Tokens taken over; they are there, and so is their state."""
        start = self.store.begin(prompt)
        self._move(start.moves)
        first = tuple(prompt[: start.reused])
        assert start.reused < len(prompt)
        assert tuple(self.row[start.place : start.place + start.reused]) == first == tuple(self.store.tokens)
        if start.snapshot is not None:
            assert self.states[start.snapshot] == first
        if self.slots is not None:
            assert (start.snapshot is None) == (start.reused == 0)
        self.check()
        return start.reused

    def compute(self, tokens: Sequence[int]) -> None:
        """Append tokens as a step of the model does."""
        self._move(self.store.make_room(len(tokens)))
        at = self.store.place + len(self.store.tokens)
        self.row[at : at + len(tokens)] = tokens
        self.store.append(tokens)
        self.check()

    def keep_state(self) -> None:
        """Copy the state, if the store wants it."""
        slot = self.store.take_snapshot()
        if slot is not None:
            self.states[slot] = tuple(self.store.tokens)
        self.check()

    def answer(self, prompt: Sequence[int], answer: Sequence[int]) -> int:
        """A whole request; the tokens taken over."""
        reused = self.begin(prompt)
        tail = max(len(prompt) - TAIL_TOKENS, reused)
        self.compute(prompt[reused:tail])
        self.keep_state()
        self.compute(prompt[tail:])
        for token in answer:
            self.compute([token])
        self.keep_state()
        return reused

    def _move(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self.row[move.target : move.target + move.tokens] = self.row[move.source : move.source + move.tokens]
        assert len(self.row) == self.capacity

    def check(self) -> None:
        """Sequences do not overlap, hold what they promise, and stay inside the pool."""
        end = 0
        for place, tokens in self.store.kept():
            assert place >= end
            end = place + len(tokens)
            assert tuple(self.row[place:end]) == tokens
        assert end <= self.capacity
        assert self.store.held_tokens <= self.capacity


def _common(left: Tokens, right: Tokens) -> int:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


short = st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple)
prompts = st.one_of(short, st.lists(st.integers(0, 2), min_size=1, max_size=40).map(tuple))


@dataclass(frozen=True)
class Request:
    prompt: Tokens
    answer: int
    computed: int | None  # cancelled or failed after so many tokens of the prompt


requests = st.lists(
    st.builds(Request, prompts, st.integers(0, 12), st.one_of(st.none(), st.integers(0, 40))), min_size=1, max_size=14
)


@given(capacity=st.integers(40, 120), slots=st.one_of(st.none(), st.integers(0, 5)), asked=requests)
def test_whatever_is_asked_the_pool_holds_what_the_store_says(
    capacity: int, slots: int | None, asked: list[Request]
) -> None:
    """`Pool` checks after every step that the promised tokens are there, whole, and within the pool."""
    pool = Pool(capacity, slots)
    history: Tokens = ()
    for request in asked:
        prompt = (*history, *request.prompt)[-capacity:] if request.answer % 2 else request.prompt
        room = capacity - len(prompt)
        if request.computed is None:
            pool.answer(prompt, [7] * min(request.answer, room))
            history = tuple(pool.store.tokens)
        else:
            reused = pool.begin(prompt)
            pool.compute(prompt[reused : reused + request.computed])


class Naive:
    """What is reused, by the rule in words: newest sequences first in a list, nothing about places."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.kept: list[Tokens] = []

    def answer(self, prompt: Tokens) -> int:
        best = max(self.kept, key=lambda old: _common(old, prompt[:-1]), default=())
        reused = _common(best, prompt[:-1])
        same_chat = reused >= len(best) - TAIL_TOKENS or len(best) + len(prompt) > self.capacity
        if reused and same_chat:
            self.kept.remove(best)
        elif reused:
            self.kept.remove(best)
            self.kept.insert(0, best)
        while sum(map(len, self.kept)) + len(prompt) > self.capacity:
            self.kept.pop()
        self.kept.insert(0, prompt)
        return reused


@given(capacity=st.integers(40, 200), asked=st.lists(prompts, min_size=2, max_size=12))
def test_the_longest_common_beginning_is_reused_and_the_longest_unused_forgotten(
    capacity: int, asked: list[Tokens]
) -> None:
    pool, naive = Pool(capacity), Naive(capacity)
    for prompt in asked:
        assert pool.answer(prompt, ()) == naive.answer(prompt)
        assert sorted(tokens for _, tokens in pool.store.kept()) == sorted(naive.kept)


def test_the_next_turn_of_a_chat_computes_its_new_tokens_only() -> None:
    pool = Pool(100)
    first = tuple(range(30))
    assert pool.answer(first, [50, 51, 52]) == 0
    assert pool.answer((*first, 50, 51, 52, 60, 61), [53]) == 33
    assert pool.answer((*first, 50, 99, 60, 61, 62), [53]) == 31, "the answer came back in other tokens"


def test_two_clients_keep_their_conversations_and_move_each_other_out_of_the_way() -> None:
    pool = Pool(100)
    mine, yours = tuple(range(30)), tuple(range(40, 70))
    pool.answer(mine, [])
    pool.answer(yours, [])
    for turn in range(5):
        mine, yours = (*mine, 80 + turn), (*yours, 90 + turn)
        assert pool.answer(mine, []) == len(mine) - 1
        assert pool.answer(yours, []) == len(yours) - 1


def test_a_shared_system_prompt_is_copied_so_that_both_conversations_stay() -> None:
    pool = Pool(100)
    system = tuple(range(20))
    mine, yours = (*system, *range(30, 45)), (*system, *range(50, 65))
    pool.answer(mine, [70])
    assert pool.answer(yours, [71]) == 20
    assert pool.answer((*mine, 70, 80), []) == 36
    assert pool.answer((*yours, 71, 80), []) == 36


def test_without_room_for_both_the_shared_beginning_is_taken_over() -> None:
    pool = Pool(60)
    system = tuple(range(20))
    pool.answer((*system, *range(30, 45)), [])
    assert pool.answer((*system, *range(50, 65)), []) == 20
    assert pool.store.held_tokens == 35


def test_who_was_away_longest_is_forgotten_when_a_running_answer_needs_the_room() -> None:
    pool = Pool(60)
    for number in (0, 1, 2):
        pool.answer((number,) * 15, [])
    pool.answer((0,) * 15, [9])
    pool.answer((3,) * 10, range(100, 115))
    assert {tokens[0] for _, tokens in pool.store.kept()} == {0, 2, 3}
    assert pool.begin((1,) * 15) == 0, "this one had been used before the others"


def test_many_short_sequences_move_as_one_and_never_pile_up() -> None:
    pool = Pool(1000)
    for number in range(60):
        pool.answer((number,) * 4, [])
        assert len(list(pool.store.kept())) <= 33
    assert pool.begin((59,) * 4) == 3, "the newest ones are kept"
    pool.begin((28,) * 9)
    moves = pool.store.make_room(900)
    assert len(moves) == 1, "all that is left slides together"
    pool = Pool(100)
    for number in range(25):
        pool.answer((number,) * 4, [])
    assert len(pool.store.begin((30,) * 4).moves) == 1


def test_one_request_may_take_the_whole_pool() -> None:
    pool = Pool(40)
    pool.answer((1,) * 20, [])
    pool.answer((2,) * 30, range(50, 60))
    assert pool.store.held_tokens == len(pool.store.tokens) == 40
    with pytest.raises(ValueError, match="in a pool of 40"):
        pool.compute([1])
    with pytest.raises(ValueError, match="in a pool of 40"):
        pool.begin((1,) * 41)


def test_a_state_is_reused_only_at_the_length_it_was_kept_at() -> None:
    pool = Pool(200, slots=4)
    first = tuple(range(30))
    pool.answer(first, [50, 51])
    assert pool.answer((*first, 50, 51, 60), []) == 32, "the answer came back as it was"
    pool = Pool(200, slots=4)
    pool.answer(first, [50, 51])
    assert pool.answer((*first, 50, 99, 60), []) == 30 - TAIL_TOKENS, "another answer: back to the prompt"
    assert pool.answer((*range(15), 99), []) == 0


def test_two_clients_keep_their_states_in_four_slots() -> None:
    pool = Pool(200, slots=4)
    mine, yours = tuple(range(30)), tuple(range(40, 70))
    pool.answer(mine, [70])
    pool.answer(yours, [71])
    for turn in range(4):
        mine, yours = (*mine, 70, 80 + turn), (*yours, 71, 90 + turn)
        assert pool.answer(mine, [70]) == len(mine) - 1
        assert pool.answer(yours, [71]) == len(yours) - 1


def test_without_slots_a_state_is_never_reused() -> None:
    pool = Pool(200, slots=0)
    pool.answer(tuple(range(30)), [50])
    assert pool.answer((*range(30), 50, 60), []) == 0


def test_a_snapshot_that_could_not_be_copied_is_not_there() -> None:
    store = PrefixStore(100, slots=1)
    store.begin(range(20))
    store.append(range(20))
    slot = store.take_snapshot()
    assert slot == 0
    store.drop_snapshot(slot)
    assert store.begin((*range(20), 30)).reused == 0


def test_beginnings_that_are_not_worth_it_are_computed() -> None:
    store = PrefixStore(100, least_tokens=16)
    for prompt, reused in ((range(12), 0), (range(14), 0), (range(30), 0), (range(40), 30)):
        assert store.begin(prompt).reused == reused
        store.append(prompt[reused:])
