"""Left-over engines on this PC: the process table, read together with our run ledger."""

from collections.abc import Callable
from dataclasses import dataclass, field

from app.orphans.classify import classify
from app.orphans.parents import Family, Life
from app.orphans.sweep import EndReport, end_orphan
from app.orphans.verdicts import Orphan, Verdicts
from app.paths import engine_dirs
from app.supervision.ledger import RunLedger
from engine.contract.errors import OrphanHoldsMemoryError
from engine.contract.processes import ProcessTable
from engine.contract.units import gib
from engine.system.protocols import LiveMemory, ProcessReader
from engine.system.select import end_process, hold_process, live_memory, process_reader


@dataclass(frozen=True, slots=True)
class Scanner:
    """Reads, judges and ends. Every call takes tens of milliseconds or more: not for the UI thread."""

    ledger: RunLedger
    reader: ProcessReader = field(default_factory=process_reader)
    open_memory: Callable[[], LiveMemory] = live_memory

    def table(self) -> ProcessTable:
        """The processes now, with the ledger and the folders of our engine."""
        return self.reader.read(engine_dirs(), self.ledger.read())

    def scan(self) -> Verdicts:
        """Verdicts on this moment. Ledger entries whose processes are all gone are removed on the way."""
        table = self.table()
        verdicts = classify(table)
        family = Family.of(table)
        found = {orphan.run_id for orphan in verdicts.orphans}
        for entry in table.ledger:
            members = (entry.engine, *entry.children, *((entry.supervisor,) if entry.supervisor else ()))
            if entry.run_id not in found and all(family.life_of(member) is Life.ENDED for member in members):
                self.ledger.remove(entry.run_id)
        return verdicts

    def end(self, orphan: Orphan, give_up: Callable[[], bool] = lambda: False) -> EndReport:
        """End a left-over tree and wait for its memory, as long as `give_up` does not say otherwise."""
        memory = self.open_memory()
        try:
            return end_orphan(
                orphan,
                end=end_process,
                hold=hold_process,
                read_table=self.table,
                read_memory=memory.read,
                give_up=give_up,
            )
        finally:
            memory.close()


def refuse_start(verdicts: Verdicts) -> None:
    """The check before a start: nothing that is provably ours may still hold memory.

    Raises:
        OrphanHoldsMemoryError: names the processes and their bytes.
    """
    ours = [orphan for orphan in verdicts.orphans if orphan.confidence == "ours"]
    if not ours:
        return
    pids = [pid for orphan in ours for pid in orphan.pids]
    ram, gpu = (
        sum(size or 0 for size in sizes) for sizes in zip(*((o.rss_bytes, o.gpu_bytes) for o in ours), strict=True)
    )
    held = " and ".join(f"{gib(size)} of {pool}" for size, pool in ((gpu, "VRAM"), (ram, "RAM")) if size)
    who = f"PID {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes, first PID {pids[0]}"
    raise OrphanHoldsMemoryError(
        f"An engine process from an earlier run ({who}) still holds {held or 'memory'}.",
        "End it with `python -m app orphans --end`, or start anyway with --despite-orphans.",
        short_bytes=None,
        pids=" ".join(str(pid) for pid in pids),
        rss_bytes=ram,
        gpu_bytes=gpu,
    )
