"""Ends a left-over process tree by identity, and waits until its memory has come back."""

import time
from collections.abc import Callable, Sequence

from pydantic import Field

from app.orphans.memory_return import MemoryReturn, wait_for_return
from app.orphans.parents import Family
from app.orphans.signs import identity_of
from app.orphans.verdicts import Orphan
from engine.contract.processes import ProcessIdentity, ProcessTable
from engine.contract.record import Record
from engine.system.protocols import EndResult, MemoryUse

PROCESS_S = 10.0  # a driver may hold a process that was told to end
_SCANS = 5  # a tree that keeps growing faster than it is ended is reported, not chased for ever

EndProcess = Callable[[ProcessIdentity, float], EndResult]
HoldProcess = Callable[[ProcessIdentity], None]


class EndReport(Record):
    """What ending a tree brought."""

    ended: tuple[int, ...] = Field(description="pids that are gone by our doing")
    kept: dict[int, str] = Field(description="pids that still live or were left alone, and why")
    vram_back_bytes: int | None
    ram_back_bytes: int | None
    elapsed_s: float = Field(description="until the memory stood still")
    settled: bool = Field(description="False: the processes are gone, but their GPU memory is not back")
    sentence: str

    @property
    def success(self) -> bool:
        return not self.kept and self.settled


def end_orphan(
    orphan: Orphan,
    *,
    end: EndProcess,
    read_table: Callable[[], ProcessTable],
    read_memory: Callable[[], MemoryUse],
    hold: HoldProcess = lambda identity: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    give_up: Callable[[], bool] = lambda: False,
) -> EndReport:
    """End every process of the tree, also children that appeared since, then wait for the memory to come back.

    `end` and `hold` must compare pid and creation time themselves, at the moment they act; nothing is ended by name or
    by pid alone. `hold` keeps a process from starting another one, where the system can do that.
    `give_up` is asked while waiting: a program that quits need not know how the wait ends.
    """
    before = read_memory()
    started = clock()
    results = _end_tree(orphan, end, hold, read_table)
    ended = tuple(pid for pid, result in results.items() if result is EndResult.ENDED)
    kept = {
        pid: _why_kept(result) for pid, result in results.items() if result not in (EndResult.ENDED, EndResult.GONE)
    }
    back = wait_for_return(
        before,
        read_memory,
        expected_vram=orphan.gpu_bytes if ended and not kept else None,
        since=started,
        give_up=give_up,
        clock=clock,
        sleep=sleep,
    )
    return EndReport(
        ended=ended,
        kept=kept,
        vram_back_bytes=back.vram_bytes,
        ram_back_bytes=back.ram_bytes,
        elapsed_s=back.elapsed_s,
        settled=back.settled,
        sentence=_sentence(ended, kept, back),
    )


def _end_tree(
    orphan: Orphan, end: EndProcess, hold: HoldProcess, read_table: Callable[[], ProcessTable]
) -> dict[int, EndResult]:
    """End top first, so that a parent cannot start its workers again; look again for newcomers until there are none.

    All are held before the first is ended: on Linux the children of the ended cannot be told from others afterwards.
    """
    results: dict[int, EndResult] = {}
    known: list[ProcessIdentity] = []
    waiting: list[ProcessIdentity] = []
    newcomers: Sequence[ProcessIdentity] = orphan.identities
    for _ in range(_SCANS):
        for _ in range(_SCANS):
            if not newcomers:
                break
            for identity in newcomers:
                hold(identity)
            known += newcomers
            waiting += newcomers
            newcomers = _newcomers(known, read_table())
        for identity in waiting:
            results[identity.pid] = end(identity, PROCESS_S)
        waiting = []
        newcomers = _newcomers(known, read_table())  # where nothing can be held, or born in the last moment
        if not newcomers:
            break
    return results


def _newcomers(known: Sequence[ProcessIdentity], table: ProcessTable) -> list[ProcessIdentity]:
    """Living descendants of the known processes; of the ended ones too, whose pids their children still name."""
    family = Family.of(table)
    found: list[ProcessIdentity] = []
    queue = list(known)
    seen = {identity.pid for identity in known}
    while queue:
        parent = queue.pop(0)
        for row in family.rows.values():
            identity = identity_of(row)
            if row.ppid != parent.pid or identity is None or identity.pid in seen:
                continue
            if identity.create_time < parent.create_time or _reused(parent, family, identity):
                continue
            seen.add(identity.pid)
            found.append(identity)
            queue.append(identity)
    return found


def _reused(parent: ProcessIdentity, family: Family, child: ProcessIdentity) -> bool:
    """The parent's pid has passed to another process that is old enough to be the child's true parent."""
    holder = family.rows.get(parent.pid)
    if holder is None or holder.create_time is None:
        return False
    another = abs(holder.create_time - parent.create_time) > 1.0
    return another and holder.create_time <= child.create_time


def _why_kept(result: EndResult) -> str:
    match result:
        case EndResult.DENIED:
            return "access was denied"
        case EndResult.NOT_THE_SAME:
            return "this PID belongs to another process now"
        case _:
            return "it was told to end, but a driver still holds it"


def _sentence(ended: tuple[int, ...], kept: dict[int, str], back: MemoryReturn) -> str:
    """The report in words; the first case that fits."""
    if kept:
        pid, why = next(iter(kept.items()))
        rest = f"{len(ended)} of its processes ended." if ended else "Nothing was ended."
        return f"PID {pid} was not ended: {why}. {rest}"
    if not ended:
        return "The process was gone already."
    if not back.settled:
        return f"The process is gone, but {back.words}"
    return f"Ended. {back.words}".rstrip()
