"""Ends a left-over process tree by identity, and waits until its memory has come back."""

import time
from collections.abc import Callable, Sequence

from pydantic import Field

from app.orphans.parents import Family
from app.orphans.signs import identity_of
from app.orphans.verdicts import Orphan
from engine.contract.processes import ProcessIdentity, ProcessTable
from engine.contract.record import Record
from engine.contract.units import MIB, gib
from engine.system.protocols import EndResult, MemoryUse

POLL_S = 0.25
SETTLE_S = 60.0
PROCESS_S = 10.0  # a driver may hold a process that was told to end
_BACK_SHARE = 0.75  # of the tree's GPU memory; counters of the driver and of the process never agree exactly
_STILL_BYTES = 64 * MIB  # between two polls: other programs never stand quite still
_SCANS = 5  # a tree that keeps growing faster than it is ended is reported, not chased for ever

EndProcess = Callable[[ProcessIdentity, float], EndResult]


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
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    settle_s: float = SETTLE_S,
    give_up: Callable[[], bool] = lambda: False,
) -> EndReport:
    """End every process of the tree, also children that appeared since, then wait for the memory to come back.

    `end` must compare pid and creation time itself, at the moment it acts; nothing is ended by name or by pid alone.
    `give_up` is asked while waiting: a program that quits need not know how the wait ends.
    """
    before = read_memory()
    started = clock()
    results = _end_tree(orphan, end, read_table)
    ended = tuple(pid for pid, result in results.items() if result is EndResult.ENDED)
    kept = {
        pid: _why_kept(result) for pid, result in results.items() if result not in (EndResult.ENDED, EndResult.GONE)
    }
    expected = orphan.gpu_bytes if ended and not kept else None
    deadline = started + settle_s
    after, settled = _wait_for_memory(
        before, expected, read_memory, sleep, waiting=lambda: clock() < deadline and not give_up()
    )
    elapsed_s = clock() - started
    vram, ram = _back(before.vram_used, after.vram_used), _back(before.ram_used, after.ram_used)
    return EndReport(
        ended=ended,
        kept=kept,
        vram_back_bytes=vram,
        ram_back_bytes=ram,
        elapsed_s=elapsed_s,
        settled=settled,
        sentence=_sentence(orphan, ended, kept, vram, ram, elapsed_s, settled=settled),
    )


def _end_tree(orphan: Orphan, end: EndProcess, read_table: Callable[[], ProcessTable]) -> dict[int, EndResult]:
    """End top first, so that a parent cannot start its workers again; look again for newcomers until there are none."""
    results: dict[int, EndResult] = {}
    told: list[ProcessIdentity] = []
    newcomers: Sequence[ProcessIdentity] = orphan.identities
    for _ in range(_SCANS):
        table = read_table()  # before the parents are gone: afterwards their children cannot be told from others
        newcomers = [*newcomers, *_newcomers([*told, *newcomers], table)]
        if not newcomers:
            break
        for identity in newcomers:
            results[identity.pid] = end(identity, PROCESS_S)
            told.append(identity)
        newcomers = []
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


def _wait_for_memory(
    before: MemoryUse,
    expected_vram: int | None,
    read_memory: Callable[[], MemoryUse],
    sleep: Callable[[float], None],
    waiting: Callable[[], bool],
) -> tuple[MemoryUse, bool]:
    """Poll until the GPU memory is back and nothing moves any more; False if the wait ended before it was back."""

    def enough(now: MemoryUse) -> bool:
        back = _back(before.vram_used, now.vram_used)
        return expected_vram is None or back is None or back >= expected_vram * _BACK_SHARE

    last = read_memory()
    while waiting():
        sleep(POLL_S)
        now = read_memory()
        still = _stands_still(last.vram_used, now.vram_used) and _stands_still(last.ram_used, now.ram_used)
        last = now
        if still and enough(now):
            break
    return last, enough(last)


def _stands_still(one: int | None, other: int | None) -> bool:
    return one is None or other is None or abs(one - other) <= _STILL_BYTES


def _back(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, before - after)


def _why_kept(result: EndResult) -> str:
    match result:
        case EndResult.DENIED:
            return "access was denied"
        case EndResult.NOT_THE_SAME:
            return "this PID belongs to another process now"
        case _:
            return "it was told to end, but a driver still holds it"


def _sentence(
    orphan: Orphan,
    ended: tuple[int, ...],
    kept: dict[int, str],
    vram: int | None,
    ram: int | None,
    elapsed_s: float,
    *,
    settled: bool,
) -> str:
    """The report in words; the first case that fits."""
    if kept:
        pid, why = next(iter(kept.items()))
        rest = f"{len(ended)} of its processes ended." if ended else "Nothing was ended."
        return f"PID {pid} was not ended: {why}. {rest}"
    if not ended:
        return "The process was gone already."
    if not settled:
        held = (orphan.gpu_bytes or 0) - (vram or 0)
        return (
            f"The process is gone, but {gib(max(held, 0))} of VRAM are still in use. "
            "The driver has not released them; sign out or restart."
        )
    parts = [f"{gib(size)} of {pool}" for size, pool in ((vram, "VRAM"), (ram, "RAM")) if size and size >= MIB]
    return f"Ended. {' and '.join(parts)} came back in {elapsed_s:.1f} s." if parts else "Ended."
