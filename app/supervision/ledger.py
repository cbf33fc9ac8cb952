"""The run ledger: which engines this profile started, so that a later launcher can find what was left over.

One file per run, `runs/<run id>.json`, replaced as a whole; removed when the whole process tree is gone.
"""

import logging
import re
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from app.files import set_aside, write_atomically
from engine.contract.processes import RunEntry

log = logging.getLogger(__name__)

KEPT_FOLDERS = 20
_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")  # sorts by time; nothing else in the folder is touched


def new_run_id() -> str:
    """A name for a run, unlike any other on this computer."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{uuid4().hex[:6]}"


@dataclass(frozen=True, slots=True)
class RunLedger:
    """The ledger in one folder. Several launchers may use it: each touches only its own runs."""

    folder: Path

    def run_dir(self, run_id: str) -> Path:
        """Folder for the plan and the log of a run; stays after the run."""
        return self.folder / run_id

    def read(self) -> tuple[RunEntry, ...]:
        """All entries. One that cannot be understood is renamed and reported in the log; the others count."""
        entries = []
        for file in sorted(self.folder.glob("*.json")):
            if ".broken-" in file.name:
                continue
            try:
                entries.append(RunEntry.model_validate_json(file.read_bytes()))
            except FileNotFoundError:
                continue  # another launcher removed it just now
            except OSError as cause:
                log.warning("run ledger: %s cannot be read: %s", file, cause)
            except ValidationError as cause:
                log.warning("run ledger: %s cannot be understood: %s", file, cause)
                self._put_aside(file)
        return tuple(entries)

    def record(self, entry: RunEntry) -> bool:
        """Write or replace the entry of a run. False if the disk refused: the engine runs on without it.

        The ledger is the second line of defence; the engine dies with its launcher even where it cannot be written.
        """
        try:
            write_atomically(self._file(entry.run_id), entry.model_dump_json(indent=2) + "\n")
        except OSError as cause:
            log.warning("run ledger: run %s could not be recorded: %s", entry.run_id, cause)
            return False
        return True

    def remove(self, run_id: str) -> None:
        """Forget a run whose processes are all gone. Harmless if it was never recorded."""
        try:
            self._file(run_id).unlink(missing_ok=True)
        except OSError as cause:
            log.warning("run ledger: run %s could not be removed: %s", run_id, cause)

    def forget_old_folders(self, keep: int = KEPT_FOLDERS) -> None:
        """Delete plans and logs of the oldest runs that are not on record; the newest `keep` stay."""
        folders = sorted(path for path in self.folder.glob("*/") if _RUN_ID.fullmatch(path.name))
        for folder in folders[: max(0, len(folders) - keep)]:
            if not self._file(folder.name).exists():
                shutil.rmtree(folder, ignore_errors=True)  # a log that is open elsewhere goes with a later run

    def _file(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.json"

    def _put_aside(self, file: Path) -> None:
        try:
            set_aside(file)
        except OSError as cause:
            log.warning("run ledger: %s could not be renamed: %s", file, cause)
