"""The folder of one run of the engine: the plan it was started with."""

from pathlib import Path

from app.files import write_atomically
from engine.contract.errors import SplitpinError
from engine.contract.plan import MemoryPlan


class RunFolderError(SplitpinError):
    """The plan of a run could not be written."""

    kind = "run_folder"


def write_plan(plan: MemoryPlan, folder: Path) -> Path:
    """Write the plan where the engine reads it, and where a person can.

    Raises:
        RunFolderError: the disk is full, or the folder cannot be written.
    """
    file = folder / "plan.json"
    try:
        write_atomically(file, plan.model_dump_json(indent=2) + "\n")
    except OSError as cause:
        raise RunFolderError(
            f"The plan could not be written to {folder}: {cause.strerror or cause}.",
            "Make room on the disk, or check that the folder can be written.",
        ) from cause
    return file
