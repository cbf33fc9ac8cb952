"""Does a process still have a living parent? By pids and creation times: no parent is younger than its child."""

from dataclasses import dataclass
from enum import StrEnum

from app.orphans.signs import (
    declared_parent,
    declared_parent_pid,
    is_over,
    is_posix,
    is_reaper,
    is_spawn_child,
    option,
    program,
    runs_engine,
    same_process,
)
from engine.contract.processes import ProcessIdentity, ProcessRow, ProcessTable, RunEntry

_TICK_S = 0.02  # parent and child made within one clock tick may seem to be the wrong way round


class Life(StrEnum):
    """Of a parent."""

    ALIVE = "alive"
    ENDED = "ended"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Parent:
    """The parent of one process: its pid as far as known, whether it lives, and how that is known, in words."""

    pid: int | None
    life: Life
    words: str


@dataclass(frozen=True, slots=True)
class Family:
    """A process table, asked about parents and children."""

    rows: dict[int, ProcessRow]  # without processes that have ended and are still listed
    ledger: tuple[RunEntry, ...]

    @classmethod
    def of(cls, table: ProcessTable) -> "Family":
        return cls({row.pid: row for row in table.processes if not is_over(row)}, table.ledger)

    def life_of(self, identity: ProcessIdentity) -> Life:
        """Whether exactly this process lives."""
        row = self.rows.get(identity.pid)
        if row is None:
            return Life.ENDED
        if row.create_time is None:
            return Life.UNCLEAR
        same = same_process(identity, ProcessIdentity(pid=row.pid, create_time=row.create_time))
        return Life.ALIVE if same else Life.ENDED

    def entry_of(self, row: ProcessRow) -> RunEntry | None:
        """The ledger entry of the run a process belongs to: by identity, by run id, or by its ended parent."""
        if row.create_time is not None:
            me = ProcessIdentity(pid=row.pid, create_time=row.create_time)
            for entry in self.ledger:
                if any(same_process(me, member) for member in (entry.engine, *entry.children)):
                    return entry
        run_id = option(row, "--run-id") if runs_engine(row) else None
        for entry in self.ledger:
            if run_id == entry.run_id:
                return entry
        return self._entry_of_ended_parent(row)

    def parent_of(self, row: ProcessRow) -> Parent:
        """The parent, as certain as the table allows."""
        launcher = self._launcher_of(row)
        if launcher is None:
            return self._parent_by_pid(row)
        life = self.life_of(launcher)
        if life is Life.UNCLEAR:
            return Parent(launcher.pid, life, _unreadable(launcher.pid))
        if life is Life.ALIVE:
            return Parent(launcher.pid, life, f"its launcher (PID {launcher.pid}) is running")
        ended = Parent(launcher.pid, Life.ENDED, self._how_ended(launcher.pid))
        if row.ppid is None or row.ppid == launcher.pid:
            return ended
        # Another process stands in between: the redirector of a virtual environment, or a reaper.
        middle = self._parent_by_pid(row)
        if middle.life is Life.ALIVE and not is_posix(row):
            return middle
        return ended if middle.life is not Life.UNCLEAR else middle

    def children_of(self, pid: int) -> list[ProcessRow]:
        """Living children, those that reuse the parent's pid as a number left out."""
        parent = self.rows.get(pid)
        if parent is None or parent.create_time is None:
            return []
        start = parent.create_time - _TICK_S
        mine = (row for row in self.rows.values() if row.ppid == pid and row.pid != pid)
        return [row for row in mine if row.create_time is not None and row.create_time >= start]

    def _launcher_of(self, row: ProcessRow) -> ProcessIdentity | None:
        """The launcher of an engine, by the ledger or by the engine's own command line."""
        if row.create_time is not None:
            me = ProcessIdentity(pid=row.pid, create_time=row.create_time)
            for entry in self.ledger:
                if entry.supervisor is not None and same_process(me, entry.engine):
                    return entry.supervisor
        return declared_parent(row)

    def _parent_by_pid(self, row: ProcessRow) -> Parent:
        """The parent where only a number is known of it."""
        declared = declared_parent_pid(row)
        pids = [pid for pid in dict.fromkeys((row.ppid, declared)) if pid]
        if not pids:
            return Parent(None, Life.UNCLEAR, "its parent cannot be read")
        verdicts = [self._number(row, pid) for pid in pids]
        for life in (Life.ALIVE, Life.UNCLEAR):
            for verdict in verdicts:
                if verdict.life is life:
                    return verdict
        return verdicts[-1]  # the pid of the true parent, where a reaper stepped in

    def _number(self, row: ProcessRow, pid: int) -> Parent:
        holder = self.rows.get(pid)
        if holder is None:
            return Parent(pid, Life.ENDED, self._how_ended(pid))
        if holder.create_time is None or row.create_time is None:
            return Parent(pid, Life.UNCLEAR, _unreadable(pid))
        if holder.create_time > row.create_time + _TICK_S:
            return Parent(pid, Life.ENDED, self._how_ended(pid))
        if is_reaper(holder) and (is_spawn_child(row) or runs_engine(row) or self._recorded(row)):
            return Parent(pid, Life.ENDED, f"it now hangs on {program(holder)}, PID {pid}")
        return Parent(pid, Life.ALIVE, f"its parent ({program(holder)}, PID {pid}) is running")

    def _recorded(self, row: ProcessRow) -> bool:
        return row.create_time is not None and any(
            same_process(ProcessIdentity(pid=row.pid, create_time=row.create_time), member)
            for entry in self.ledger
            for member in (entry.engine, *entry.children)
        )

    def _entry_of_ended_parent(self, row: ProcessRow) -> RunEntry | None:
        """The run whose member, now gone, was the parent of this process."""
        pids = {row.ppid, declared_parent_pid(row)}
        for entry in self.ledger:
            for member in (entry.engine, *entry.children):
                older = row.create_time is not None and member.create_time <= row.create_time + _TICK_S
                if member.pid in pids and older and self.life_of(member) is Life.ENDED:
                    return entry
        return None

    def _how_ended(self, pid: int) -> str:
        holder = self.rows.get(pid)
        return f"PID {pid} is gone" if holder is None else f"PID {pid} is now {program(holder)}, started later"


def _unreadable(pid: int) -> str:
    return f"the start time of PID {pid} cannot be read"
