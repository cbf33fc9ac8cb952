"""Processes as data: the live table, a recorded one, and the ledger of our own runs share these records."""

from pydantic import Field

from engine.contract.record import Record


class ProcessIdentity(Record):
    """A pid is reused; a pid with its creation time is not."""

    pid: int
    create_time: float = Field(description="seconds since the epoch")


class RunEntry(Record):
    """One engine run in the ledger: enough to find its whole tree after a crash of the launcher."""

    run_id: str
    engine: ProcessIdentity
    supervisor: ProcessIdentity | None = Field(default=None, description="the launcher that started it")
    children: tuple[ProcessIdentity, ...] = ()
    port: int | None = None
    model: str | None = None


class ProcessRow(Record):
    """One process; what could not be read is None."""

    pid: int
    ppid: int | None = None
    create_time: float | None = None
    exe: str | None = None
    cmdline: tuple[str, ...] | None = None
    user: str | None = None
    status: str | None = None
    rss_bytes: int | None = None
    private_bytes: int | None = Field(default=None, description="of its memory, what no other process shares")
    locked_bytes: int | None = Field(default=None, description="kept from being paged out")
    gpu_bytes: int | None = Field(default=None, description="VRAM")
    gpu_shared_bytes: int | None = Field(default=None, description="RAM that a GPU uses, pinned or spilled")


class ProcessTable(Record):
    """All processes at one moment; the file format of `python -m app orphans --processes`."""

    now: float
    user: str | None = Field(default=None, description="who is asking; None: not compared")
    engine_dirs: tuple[str, ...] = ()
    ledger: tuple[RunEntry, ...] = ()
    processes: tuple[ProcessRow, ...]
