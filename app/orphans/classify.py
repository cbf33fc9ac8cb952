"""Which processes are left over from an earlier run: a pure function from a process table to verdicts.

Nothing is offered that has a living parent, belongs to another user, or whose creation time cannot be read.
"""

from dataclasses import dataclass

from app.orphans.parents import Family, Life, Parent
from app.orphans.signs import (
    GPU_USER_BYTES,
    LARGE_BYTES,
    command_line,
    identity_of,
    is_in,
    is_python,
    is_spawn_child,
    option,
    program,
    runs_engine,
    runs_launcher,
)
from app.orphans.verdicts import Confidence, Orphan, OtherUse, ProgramUse, Verdicts
from engine.contract.processes import ProcessRow, ProcessTable, RunEntry
from engine.contract.units import gib

_MOST_PROGRAMS = 8


@dataclass(frozen=True, slots=True)
class _Claim:
    """Why a process is, or may be, one of Splitpin's."""

    confidence: Confidence
    words: str
    entry: RunEntry | None = None


@dataclass(frozen=True, slots=True)
class _Root:
    """A process without a parent that may be offered, with the whole tree below it."""

    row: ProcessRow
    parent: Parent
    claim: _Claim

    @property
    def confidence(self) -> Confidence:
        return "uncertain" if self.parent.life is Life.UNCLEAR else self.claim.confidence

    @property
    def group(self) -> tuple[str, Confidence, object]:
        """Processes that ended together with one parent, or belong to one run, are one orphan."""
        if self.claim.entry is not None:
            return "run", self.confidence, self.claim.entry.run_id
        if runs_engine(self.row):
            return "run", self.confidence, option(self.row, "--run-id")
        if is_spawn_child(self.row) and self.parent.pid is not None:
            return "parent", self.confidence, self.parent.pid
        return "process", self.confidence, self.row.pid


def classify(table: ProcessTable) -> Verdicts:
    """Say of every process in the table whether it is left over. Reads nothing and ends nothing."""
    family = Family.of(table)
    groups: dict[tuple[str, Confidence, object], list[_Root]] = {}
    for row in family.rows.values():
        root = _root(row, table, family)
        if root is not None:
            groups.setdefault(root.group, []).append(root)
    orphans: list[Orphan] = []
    offered: set[int] = set()
    for roots in groups.values():
        tree = [row for row in _tree(roots, table, family) if row.pid not in offered]
        if tree:
            orphans.append(_orphan(roots, tree, table.now))
            offered |= {row.pid for row in tree}
    orphans.sort(key=_weight)
    others = (_other(row, table, family) for row in family.rows.values() if row.pid not in offered)
    return Verdicts(
        orphans=tuple(orphans),
        others=tuple(sorted((use for use in others if use is not None), key=lambda use: -(use.gpu_bytes or 0))),
        programs=_programs([row for row in family.rows.values() if row.pid not in offered and not runs_launcher(row)]),
    )


def _programs(rows: list[ProcessRow]) -> tuple[ProgramUse, ...]:
    """Sums by name: a browser is one program in dozens of processes. Memory they share counts for each of them."""
    sums: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.exe is None and not row.cmdline:
            continue  # nothing to call it
        ram, gpu = sums.get(program(row), (0, 0))
        own = row.private_bytes if row.private_bytes is not None else row.rss_bytes
        sums[program(row)] = ram + min(own or 0, row.rss_bytes or 0), gpu + (row.gpu_bytes or 0)
    found = [ProgramUse(name=name, rss_bytes=ram, gpu_bytes=gpu) for name, (ram, gpu) in sums.items()]
    found.sort(key=lambda use: -(use.rss_bytes + use.gpu_bytes))
    return tuple(found[:_MOST_PROGRAMS])


def _root(row: ProcessRow, table: ProcessTable, family: Family) -> _Root | None:
    if row.create_time is None or _foreign(row, table) or runs_launcher(row):
        return None
    claim = _claim(row, table, family)
    if claim is None or _supervised(claim.entry, family):
        return None
    parent = family.parent_of(row)
    if parent.life is Life.ALIVE or (parent.life is Life.UNCLEAR and claim.confidence == "possible"):
        return None
    return _Root(row, parent, claim)


def _claim(row: ProcessRow, table: ProcessTable, family: Family) -> _Claim | None:
    entry = family.entry_of(row)
    if entry is not None:
        return _Claim("ours", f"Splitpin noted it as part of its engine run {entry.run_id}", entry)
    if runs_engine(row):
        return _Claim("ours", f"its command line is that of Splitpin's engine, run {option(row, '--run-id')}")
    spawned = is_spawn_child(row)
    if is_in(row, table.engine_dirs):
        if row.cmdline is None:
            return _Claim("uncertain", "it runs from Splitpin's folder, but its command line cannot be read")
        if spawned or not is_python(row) or _runs_from(row, table.engine_dirs):
            return _Claim("ours", "it runs from Splitpin's engine folder")
    large = (row.rss_bytes or 0) >= LARGE_BYTES or (row.gpu_bytes or 0) >= GPU_USER_BYTES
    if not large or not (spawned or is_python(row)):
        return None
    return _Claim("possible", "it is a worker process of some Python program" if spawned else "it is a Python process")


def _runs_from(row: ProcessRow, folders: tuple[str, ...]) -> bool:
    """A Python of ours runs a module named engine, or a script that lies in our folder."""
    words = (row.cmdline or ())[1:]
    if any(words[i : i + 2] == ("-m", "engine") for i in range(len(words))):
        return True
    script = next((word for word in words if not word.startswith("-")), None)
    return script is not None and is_in(ProcessRow(pid=0, exe=script), folders)


def _supervised(entry: RunEntry | None, family: Family) -> bool:
    """The run is looked after: its engine and the launcher that started it both live."""
    if entry is None or entry.supervisor is None:
        return False
    return Life.ALIVE == family.life_of(entry.supervisor) == family.life_of(entry.engine)


def _foreign(row: ProcessRow, table: ProcessTable) -> bool:
    """Belongs to another user, as far as that can be read."""
    return table.user is not None and row.user is not None and row.user.casefold() != table.user.casefold()


def _tree(roots: list[_Root], table: ProcessTable, family: Family) -> list[ProcessRow]:
    """The roots and everything living below them, top first; what could not be ended safely is left out."""
    found: dict[int, ProcessRow] = {}
    queue = sorted((root.row for root in roots), key=lambda row: row.create_time or 0)
    while queue:
        row = queue.pop(0)
        if row.pid in found or _foreign(row, table) or runs_launcher(row):
            continue
        found[row.pid] = row
        queue += family.children_of(row.pid)
    return list(found.values())


def _orphan(roots: list[_Root], rows: list[ProcessRow], now: float) -> Orphan:
    top = min(roots, key=lambda root: root.row.create_time or 0)
    confidence = top.confidence
    parent = "Its parent ended" if top.parent.life is Life.ENDED else "It is uncertain whether its parent ended"
    return Orphan(
        pids=tuple(row.pid for row in rows),
        identities=tuple(identity for row in rows if (identity := identity_of(row)) is not None),
        name=program(top.row),
        command_line=command_line(top.row),
        reason=f"{parent} ({top.parent.words}); {top.claim.words}.",
        confidence=confidence,
        preselected=confidence == "ours",
        rss_bytes=_sum([row.rss_bytes for row in rows]),
        gpu_bytes=_sum([row.gpu_bytes for row in rows]),
        private_bytes=_sum([row.private_bytes for row in rows]),
        locked_bytes=_sum([row.locked_bytes for row in rows]),
        gpu_shared_bytes=_sum([row.gpu_shared_bytes for row in rows]),
        age_s=max(0.0, now - (top.row.create_time or now)),
        run_id=top.claim.entry.run_id if top.claim.entry else option(top.row, "--run-id"),
    )


def _other(row: ProcessRow, table: ProcessTable, family: Family) -> OtherUse | None:
    """Users of the GPU, and large Python processes that one might take for left-overs, with why they are not."""
    uses_gpu = (row.gpu_bytes or 0) >= GPU_USER_BYTES
    claim = _claim(row, table, family)
    if not uses_gpu and claim is None:
        return None
    if _foreign(row, table):
        why = "it belongs to another user"
    elif row.create_time is None:
        why = "its start time cannot be read"
    elif claim is None or runs_launcher(row):
        why = f"{program(row)} is not a left-over engine"
    elif _supervised(claim.entry, family):
        why = "it is the engine of a running Splitpin"
    else:
        why = family.parent_of(row).words
    use = f"holds {gib(row.gpu_bytes)} of GPU memory" if uses_gpu and row.gpu_bytes else "not offered"
    return OtherUse(
        pid=row.pid,
        name=program(row),
        reason=f"{use[0].upper()}{use[1:]}: {why}.",
        rss_bytes=row.rss_bytes,
        gpu_bytes=row.gpu_bytes,
    )


def _sum(values: list[int | None]) -> int | None:
    """Sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _weight(orphan: Orphan) -> tuple[bool, int]:
    """Proven ones first, then the largest."""
    return (orphan.confidence != "ours", -((orphan.gpu_bytes or 0) + (orphan.rss_bytes or 0)))
