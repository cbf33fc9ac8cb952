"""A machine, or its processes, replayed from a file: for tests, demonstrations and bug reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from typing_extensions import override

from engine.contract.errors import UsageError
from engine.contract.facts import HardwareFacts
from engine.contract.processes import ProcessTable, RunEntry
from engine.contract.record import Record, first_fault
from engine.system.protocols import LiveMemory, MachineProbe, MemoryUse, ProcessReader

Kind = TypeVar("Kind", bound=Record)


_FIXES = {
    "recorded machine": "Choose a file that `python -m engine.system --json` wrote.",
    "process table": "Choose a JSON file with the fields `now` and `processes`.",
}


class RecordedFileError(UsageError):
    """A recorded machine or process table cannot be read."""

    kind = "recorded_file"

    def __init__(self, file: Path, what: str, why: str) -> None:
        super().__init__(f"{file} is not a {what}: {why}.", _FIXES[what], file=str(file))


@dataclass(frozen=True, slots=True)
class RecordedMachine(MachineProbe):
    """Replays facts.json. The facts say that they are recorded, whatever the file says."""

    file: Path

    @override
    def read(self) -> HardwareFacts:
        """The facts in the file.

        Raises:
            RecordedFileError: no such file, not JSON, or not the facts of a machine.
        """
        facts = _load(self.file, HardwareFacts, "recorded machine")
        return facts.model_copy(update={"recorded": True})


@dataclass(frozen=True, slots=True)
class RecordedMemory(LiveMemory):
    """The bars of a recorded machine: as full as they were when it was recorded."""

    facts: HardwareFacts

    @override
    def read(self) -> MemoryUse:
        total, available = self.facts.ram_total.value, self.facts.ram_available.value
        gpu = self.facts.cuda_gpu
        return MemoryUse(
            ram_used=None if total is None or available is None else total - available,
            ram_total=total,
            vram_used=None if gpu is None else gpu.vram_used.value,
            vram_total=None if gpu is None else gpu.vram_total.value,
            shared_used=None if gpu is None else gpu.shared_used.value,
            shared_limit=None if gpu is None else gpu.shared_limit.value,
        )

    @override
    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class RecordedProcesses(ProcessReader):
    """Replays a process table with the engine folders and the ledger it was recorded with."""

    file: Path

    @override
    def read(self, engine_dirs: Sequence[str], ledger: Sequence[RunEntry]) -> ProcessTable:
        """The table in the file; what is known of this PC does not mix with it.

        Raises:
            RecordedFileError: no such file, not JSON, or not a process table.
        """
        return _load(self.file, ProcessTable, "process table")


def _load(file: Path, kind: type[Kind], what: str) -> Kind:
    try:
        return kind.model_validate_json(file.read_bytes())
    except OSError as cause:
        raise RecordedFileError(file, what, cause.strerror or str(cause)) from cause
    except ValidationError as cause:
        raise RecordedFileError(file, what, first_fault(cause).told) from cause
