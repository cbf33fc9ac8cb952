"""The base of every value that crosses a process or a disk."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen value that refuses unknown fields. Unknown facts are `None`, never -1 or "N/A"."""

    model_config = ConfigDict(frozen=True, extra="forbid")
