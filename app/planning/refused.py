"""A plan that was refused, and whether it exists under other wishes or on another machine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.planning.counts import counts, default_tokens
from app.planning.held import Held
from app.planning.others import Program
from app.planning.room import Room
from app.planning.shortage import Shortage
from app.planning.wishes import Wishes
from engine.contract.errors import FixOption, UsageError
from engine.contract.facts import HardwareFacts
from engine.contract.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Refused:
    """What did not fit, and on which machine; what left-over processes and other programs hold of it."""

    room: Room
    short: Shortage
    held: Sequence[Held] = ()
    programs: Sequence[Program] = ()

    def works(self, tokens: int | None = None, **wishes: Any) -> bool:
        """Whether a plan exists under changed wishes."""
        room = self.room
        return possible(room.shape, room.facts, room.wishes.model_copy(update=wishes), tokens)

    def works_on(self, facts: HardwareFacts) -> bool:
        """Whether a plan exists on a changed machine."""
        return possible(self.room.shape, facts, self.room.wishes)

    def on(self, facts: HardwareFacts) -> "Refused":
        """The same wishes on a changed machine."""
        return replace(self, room=Room(self.room.shape, facts, self.room.wishes))

    def under(self, fix: FixOption) -> "Refused":
        """The wishes of a fix on the same machine."""
        fields = {name: value for name, value in fix.numbers.items() if name in Wishes.model_fields}
        return replace(self, room=Room(self.room.shape, self.room.facts, self.room.wishes.model_copy(update=fields)))


def possible(shape: ModelShape, facts: HardwareFacts, wishes: Wishes, tokens: int | None = None) -> bool:
    """Whether a plan exists; `tokens` replaces the wish for a context."""
    try:
        room = Room(shape, facts, wishes)
        asked = wishes.context_tokens if tokens is None else tokens
        counts(room, default_tokens(room) if asked is None else room.rounded(asked))
    except (Shortage, UsageError):
        return False
    return True
