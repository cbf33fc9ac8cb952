"""Files that are either the old ones or the new ones, never half of each."""

import os
from contextlib import suppress
from pathlib import Path


def write_atomically(file: Path, text: str) -> None:
    """Replace `file` by `text` (UTF-8), or leave it as it was.

    The text goes to a neighbour first, so that a full disk or a crash cannot cut the old file short.

    Raises:
        OSError: the folder cannot be made or written; the old file is untouched.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with fresh.open("w", encoding="utf-8", newline="\n") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def set_aside(file: Path) -> Path:
    """Rename a file that cannot be understood, so that the user can look at it, and return its new name.

    Raises:
        OSError: it cannot be renamed.
    """
    number = 1
    while (kept := file.with_name(f"{file.stem}.broken-{number}{file.suffix}")).exists():
        number += 1
    return file.replace(kept)
