"""Which sequences the KV pool holds, where they lie, and what a new prompt takes over from them. No tensors here.

The pool is a row of places, one a token. Every sequence lies in one piece, and all free places are in one piece behind
the current sequence, so that it can grow:

    [ lower sequences ][ current ][ free ][ upper sequences ]

Changing the current sequence slides others towards the ends; their order stays. Where the free places do not suffice,
the sequence that was not used for the longest time is forgotten, so a request gets all places if it needs them. The
same happens where more than `_MOST_WAITING` wait.

Keys and values of full attention are right at any length, so there a sequence can be cut anywhere. A sliding window or
a recurrent state is only right at the very length it was left at. Such models keep copies of it, snapshots, in a fixed
number of slots: one shortly before the end of a prompt, where chat templates still agree in the next turn, and one at
the end of the answer. Their sequences can be cut at these lengths only.

Where slots are few, as many sequences as possible keep one: nobody loses the last snapshot while somebody has two, and
of two the one in the prompt stays, because answers often come back in other tokens (without their thoughts). A sequence
that needs a second one takes it from whoever did not come back for long, else it does without.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

TAIL_TOKENS = 8  # the longest opening of an answer that a template writes ("<|im_start|>assistant\n<think>\n\n ...")
_PER_SEQUENCE = 2  # snapshots: one in the prompt, one behind the answer
_MOST_WAITING = 32  # sequences; many short ones would make every change of place slow
_GONE_AFTER = 4  # requests a slot: as many conversations as slots come back sooner if they take turns


@dataclass(frozen=True, slots=True)
class Move:
    """Copy so many places; source and target may overlap. Moves are made in the order they are given."""

    source: int
    target: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Start:
    """How a request begins: after the moves, the first `reused` tokens lie at `place`.

    `snapshot` is the slot whose state belongs to exactly these tokens; None where there are no such states.
    """

    place: int
    reused: int
    moves: tuple[Move, ...]
    snapshot: int | None = None


@dataclass(slots=True, eq=False)
class _Kept:
    tokens: list[int]
    prompt_tokens: int
    place: int = 0
    used: int = 0
    request: int = 0  # the last one that it was used for
    snapshots: dict[int, int] = field(default_factory=dict)  # length -> slot

    def __len__(self) -> int:
        return len(self.tokens)


class PrefixStore:
    """Sequences in one pool of fixed size; the current one grows, the others wait to be continued."""

    def __init__(self, capacity_tokens: int, *, slots: int | None = None, least_tokens: int = 1) -> None:
        """Begin with an empty current sequence.

        Args:
            capacity_tokens: places of the pool.
            slots: snapshots there is room for; None: sequences can be cut anywhere and need none.
            least_tokens: shorter beginnings are not worth taking over.
        """
        self.capacity_tokens = capacity_tokens
        self._slots = slots
        self._least_tokens = least_tokens
        self._clock = 0
        self._requests = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._free_slots = list(range(self._slots or 0))
        self._current = _Kept([], 0)
        self._lower: list[_Kept] = [self._current]  # by place; the current one comes last
        self._upper: list[_Kept] = []  # by place

    @property
    def tokens(self) -> Sequence[int]:
        """Of the current sequence."""
        return self._current.tokens

    @property
    def held_tokens(self) -> int:
        """Places taken by all sequences."""
        return sum(map(len, self._all()))

    def kept(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Place and tokens of every sequence, by place."""
        return ((one.place, tuple(one.tokens)) for one in self._all())

    def begin(self, prompt: Sequence[int]) -> Start:
        """Make a sequence current that begins with as much of the prompt as is kept, but leaves one token to compute.

        A sequence is cut and goes on where only its answer or the end of its prompt differs: the same conversation.
        Where more of its prompt differs, its beginning is copied if the pool has room for both.

        Raises:
            ValueError: the prompt is longer than the pool.
        """
        if len(prompt) > self.capacity_tokens:
            raise ValueError(f"a prompt of {len(prompt)} tokens in a pool of {self.capacity_tokens}")
        self._leave()
        self._requests += 1
        found, reused = self._longest(prompt)
        if found is None:
            self._forget_until(len(prompt), None)
            return Start(self._add(_Kept([], len(prompt))).place, 0, self._settle())
        found.used, found.request = self._tick(), self._requests
        slot = found.snapshots.get(reused)
        if reused < found.prompt_tokens - TAIL_TOKENS and len(found) + len(prompt) <= self.capacity_tokens:
            self._forget_until(len(prompt), found)
            self._turn_to(found)
            moves = self._settle()
            copy = self._add(_Kept(list(prompt[:reused]), len(prompt)))
            return Start(copy.place, reused, (*moves, Move(found.place, copy.place, reused)), slot)
        self._cut(found, reused)
        found.prompt_tokens = len(prompt)
        self._forget_until(len(prompt) - reused, found)
        self._turn_to(found)
        self._current = found
        moves = self._settle()
        return Start(found.place, reused, moves, slot)

    def make_room(self, tokens: int) -> tuple[Move, ...]:
        """Places for so many more tokens of the current sequence.

        Raises:
            ValueError: it would be longer than the pool.
        """
        if len(self._current) + tokens > self.capacity_tokens:
            raise ValueError(f"{len(self._current)} and {tokens} more tokens in a pool of {self.capacity_tokens}")
        self._forget_until(tokens, self._current)
        return self._settle()

    @property
    def place(self) -> int:
        """Where the current sequence begins."""
        return self._current.place

    def append(self, tokens: Sequence[int]) -> None:
        """These tokens of the current sequence are computed now. `make_room` came first."""
        self._current.tokens += tokens

    def take_snapshot(self) -> int | None:
        """The slot to copy the state of the current sequence to; None: there is nothing to copy."""
        length, mine = len(self._current), self._current.snapshots
        if not self._slots or not length or length in mine:
            return None
        if len(mine) == _PER_SEQUENCE:
            self._free_slots.append(mine.pop(min(mine)))
        if not self._free_slots and not self._free_a_slot():
            return None
        mine[length] = self._free_slots.pop()
        return mine[length]

    def drop_snapshot(self, slot: int) -> None:
        """Copying the current state there has failed."""
        mine = self._current.snapshots
        for length in [length for length, taken in mine.items() if taken == slot]:
            self._free_slots.append(mine.pop(length))

    def _all(self) -> list[_Kept]:
        return [*self._lower, *self._upper]

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _leave(self) -> None:
        """The current sequence waits now, as long as something can be taken over from it."""
        left = self._current
        left.used = self._tick()
        if self._slots is not None:
            self._cut(left, max(left.snapshots, default=0))
        if not left.tokens:
            self._forget(left)

    def _longest(self, prompt: Sequence[int]) -> tuple[_Kept | None, int]:
        best: _Kept | None = None
        most = self._least_tokens - 1
        for one in sorted(self._all(), key=lambda kept: -kept.used):
            common = _common(one.tokens, prompt[:-1])
            if self._slots is not None:
                common = max((length for length in one.snapshots if length <= common), default=0)
            if common > most:
                best, most = one, common
        return best, most

    def _cut(self, one: _Kept, length: int) -> None:
        del one.tokens[length:]
        for longer in [at for at in one.snapshots if at > length]:
            self._free_slots.append(one.snapshots.pop(longer))

    def _add(self, one: _Kept) -> _Kept:
        one.used, one.request = self._tick(), self._requests
        one.place = sum(map(len, self._lower))
        self._lower.append(one)
        self._current = one
        return one

    def _turn_to(self, one: _Kept) -> None:
        """Put the free places behind this sequence."""
        order = self._all()
        after = order.index(one) + 1
        self._lower, self._upper = order[:after], order[after:]

    def _settle(self) -> tuple[Move, ...]:
        """Slide lower sequences down and upper ones up. In this order no move overwrites what another still needs."""
        wanted: list[tuple[_Kept, int]] = []
        at = 0
        for one in self._lower:
            wanted.append((one, at))
            at += len(one)
        at = self.capacity_tokens
        for one in reversed(self._upper):
            at -= len(one)
            wanted.append((one, at))
        moves: list[Move] = []
        for one, target in wanted:
            if one.place != target and len(one):
                _add_move(moves, Move(one.place, target, len(one)))
            one.place = target
        return tuple(moves)

    def _forget_until(self, tokens: int, spared: _Kept | None) -> None:
        """Forget sequences, the longest unused first, until so many places are free."""
        others = sorted((one for one in self._all() if one is not spared), key=lambda kept: kept.used)
        while others and (len(others) > _MOST_WAITING or self.held_tokens + tokens > self.capacity_tokens):
            self._forget(others.pop(0))

    def _forget(self, one: _Kept) -> None:
        self._free_slots += one.snapshots.values()
        (self._lower if one in self._lower else self._upper).remove(one)

    def _free_a_slot(self) -> bool:
        """Take the longest snapshot of somebody, by the rule above; False: the current sequence has to do without."""
        current = self._current
        others = sorted((one for one in self._all() if one.snapshots and one is not current), key=lambda one: one.used)
        rich = [one for one in others if len(one.snapshots) > 1]
        gone = [one for one in others if self._requests - one.request >= _GONE_AFTER * (self._slots or 0)]
        if rich or gone or not current.snapshots:
            self._shorten((rich or gone or others)[0])
        elif max(current.snapshots) < current.prompt_tokens - TAIL_TOKENS:  # of an earlier turn: a newer one is better
            self._free_slots.append(current.snapshots.popitem()[1])
        else:
            return False
        return True

    def _shorten(self, one: _Kept) -> None:
        """Take its longest snapshot, which may end it."""
        self._free_slots.append(one.snapshots.pop(max(one.snapshots)))
        self._cut(one, max(one.snapshots, default=0))
        if not one.tokens:
            self._forget(one)


def _add_move(moves: list[Move], new: Move) -> None:
    """Append a move, or make the last one longer where both are one piece before and after."""
    last = moves[-1] if moves else None
    if last and last.source - last.target == new.source - new.target:
        if new.source == last.source + last.tokens:
            moves[-1] = Move(last.source, last.target, last.tokens + new.tokens)
            return
        if last.source == new.source + new.tokens:
            moves[-1] = Move(new.source, new.target, last.tokens + new.tokens)
            return
    moves.append(new)


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many first tokens are the same."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(left), len(right)))
