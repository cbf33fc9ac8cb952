"""How much one rendering of a chat template may make, and for how long: counted before anything is made.

Templates come with the model's files and are programs. What bounds them is the tree of every value: its characters, and
one for each list, dict and number in it, a part that is shared as often as it is reached. No value is larger than the
limit, so that comparing, printing or hashing one is quick too; and all that is made together is limited as well.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, cast

from jinja2.utils import Namespace

from engine.contract.errors import SplitpinError

TIME_S = 10.0  # 4,000 messages with 4 million characters take 0.2 s
SPARE_CHARS = 1 << 20  # what a template adds by itself: instructions, dates, names of roles
TIMES_GIVEN = 4  # and for each character that it is given
ALL_TIMES = 64  # all that is made while rendering, by the size of the largest thing
STEP_CHARS = 16  # what a step counts, so that steps have an end too
_LOOK_AFTER = 4096  # parts of one value
MOST_BITS = 4096  # of a number
_Containers = (list, tuple, dict, set, frozenset, Namespace)


class TemplateLimitError(SplitpinError):
    """A chat template makes too much text, or does not come to an end."""

    kind = "chat_template_limit"


class TemplateCancelledError(Exception):
    """Nobody waits for this prompt any more."""


class TreeSize(NamedTuple):
    """Of a value and everything it holds."""

    chars: int
    nodes: int
    depth: int


class Meter:
    """Counts one rendering. Every count may end it with a `TemplateLimitError` or `TemplateCancelledError`."""

    def __init__(
        self, given_chars: int, cancelled: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`given_chars`: size of the conversation."""
        self.most_chars = TIMES_GIVEN * given_chars + SPARE_CHARS
        self._left = ALL_TIMES * self.most_chars
        self._cancelled = cancelled
        self._clock = clock
        self._until_s = clock() + TIME_S

    def step(self) -> None:
        """One more turn of a loop, call or operation."""
        self._left -= STEP_CHARS
        if self._left < 0:
            raise self._too_much()
        self._look()

    def _look(self) -> None:
        if self._clock() > self._until_s:
            raise TemplateLimitError(
                f"The model's chat template has not come to an end after {TIME_S:.0f} s.", _FIX, limit_s=TIME_S
            )
        if self._cancelled():
            raise TemplateCancelledError

    def make(self, chars: int) -> None:
        """Something of this size is going to be made."""
        self._left -= chars
        if chars > self.most_chars or self._left < 0:
            raise self._too_much()

    def tree(self, value: Any) -> TreeSize:
        """The size of a value; one that is too large is not looked at any further."""
        chars = nodes = depth = 0
        waiting: list[tuple[Any, int]] = [(value, 1)]
        while waiting:
            one, at = waiting.pop()
            nodes += 1
            if not nodes % _LOOK_AFTER:
                self._look()
            depth = max(depth, at)
            chars += len(one) if isinstance(one, str | bytes) else 1
            if isinstance(one, _Containers):
                parts = _parts(one)
                if chars + len(parts) > self.most_chars:
                    raise self._too_much()
                waiting += [(part, at + 1) for part in parts]
            if chars > self.most_chars:
                raise self._too_much()
        return TreeSize(chars, nodes, depth)

    def made(self, value: Any) -> Any:
        """This value was made; it is handed back."""
        if isinstance(value, str | bytes):
            self.make(len(value))
        elif isinstance(value, _Containers):
            self.make(self.tree(value).chars)
        return value

    def print(self, value: Any) -> None:
        """This value is going to be written out."""
        if isinstance(value, str):
            self.make(len(value))
        elif isinstance(value, _Containers):
            size = self.tree(value)
            self.make(2 * size.chars + 4 * size.nodes)  # quotation marks, commas, brackets; escapes

    def number(self, bits: int) -> None:
        """A number of so many bits is going to be made."""
        if bits > MOST_BITS:
            raise TemplateLimitError(
                f"The model's chat template computes a number of more than {MOST_BITS:,} bits.", _FIX
            )

    def count(self, number: object) -> int:
        """An argument that says how much of something is wanted."""
        if isinstance(number, int) and abs(number) > self.most_chars:
            raise self._too_much()
        return max(number, 0) if isinstance(number, int) else 0

    def _too_much(self) -> TemplateLimitError:
        return TemplateLimitError(
            f"The model's chat template makes more than {self.most_chars:,} characters of this conversation.",
            _FIX,
            limit_chars=self.most_chars,
        )


_FIX = "Use another copy of this model, or mend its chat_template."


def _parts(container: Any) -> Collection[Any]:
    if isinstance(container, Namespace):
        container = getattr(container, "_Namespace__attrs")  # noqa: B009 - a name of that class alone
    if isinstance(container, Mapping):
        return [*container.keys(), *container.values()]
    return cast(Collection[Any], container)
