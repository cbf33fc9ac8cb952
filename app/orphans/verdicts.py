"""What is said about processes: left over, or merely using memory."""

from typing import Literal

from pydantic import Field

from engine.contract.processes import ProcessIdentity
from engine.contract.record import Record

Confidence = Literal["ours", "possible", "uncertain"]


class Orphan(Record):
    """A process tree that nobody looks after any more; it may be offered for ending.

    `ours` is proven and ended at one click; `possible` and `uncertain` are never preselected and ask once.
    """

    pids: tuple[int, ...] = Field(description="the whole tree, top first")
    identities: tuple[ProcessIdentity, ...] = Field(description="the same with creation times; ended by these only")
    name: str = Field(description="program of the topmost process")
    command_line: str | None
    reason: str = Field(description="one sentence: why it is left over, why it is or may be Splitpin's")
    confidence: Confidence
    preselected: bool
    rss_bytes: int | None = Field(description="RAM of the tree; None: cannot be read")
    gpu_bytes: int | None = Field(description="GPU memory of the tree; None: cannot be read")
    private_bytes: int | None = Field(default=None, description="RAM and page file that nobody else shares")
    locked_bytes: int | None = Field(default=None, description="RAM that is kept from being paged out")
    gpu_shared_bytes: int | None = Field(default=None, description="RAM for a GPU: about what the tree has pinned")
    age_s: float = Field(ge=0, description="since the topmost process started")
    run_id: str | None = None

    @property
    def started_s(self) -> float:
        """When the topmost process started, seconds since the epoch: the same in every scan."""
        return self.identities[0].create_time


class OtherUse(Record):
    """A process that holds memory Splitpin could use, and that is none of Splitpin's business."""

    pid: int
    name: str
    reason: str
    rss_bytes: int | None
    gpu_bytes: int | None


class ProgramUse(Record):
    """Memory of all processes of one program, left-over engines not counted."""

    name: str
    rss_bytes: int
    gpu_bytes: int


class Verdicts(Record):
    """Everything `classify` says of one process table."""

    orphans: tuple[Orphan, ...] = ()
    others: tuple[OtherUse, ...] = ()
    programs: tuple[ProgramUse, ...] = Field(default=(), description="those that hold most, the largest first")
