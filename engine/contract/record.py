"""The base of every value that crosses a process or a disk."""

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError


class Record(BaseModel):
    """A frozen value that refuses unknown fields. Unknown facts are `None`, never -1 or "N/A"."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_MOST_CHARS = 200  # of a name that somebody made up


class Fault(NamedTuple):
    """What makes a value no such record. `field`: names and numbers with dots between; empty: the value as a whole."""

    field: str
    words: str

    @property
    def told(self) -> str:
        """ "tiers.3: Input should be a valid string"."""
        return f"{self.field}: {self.words}" if self.field else self.words


def first_fault(error: ValidationError) -> Fault:
    """The first of pydantic's findings; the value itself, which may be large or private, is left out."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return Fault(field[:_MOST_CHARS], first["msg"].removeprefix("Value error, ")[:_MOST_CHARS])
