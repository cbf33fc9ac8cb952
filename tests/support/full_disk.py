"""A disk that is full: a small file system of its own where this process may mount one, else an injected fault."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

SIZE_BYTES = 16 << 20
_BLOCK = bytes(1 << 16)


class SmallDisk:
    """A tmpfs over a folder, where this is Linux and the user may mount; `real` says whether it is one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.real = False

    def __enter__(self) -> "SmallDisk":
        self.folder.mkdir(parents=True, exist_ok=True)
        if sys.platform.startswith("linux") and os.geteuid() == 0:
            self.real = _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(self.folder))
        return self

    def __exit__(self, *_: object) -> None:
        if self.real and not _run("umount", str(self.folder)):
            _run("umount", "-l", str(self.folder))

    @property
    def words(self) -> str:
        """What a full disk is here."""
        return f"a tmpfs of {SIZE_BYTES >> 20} MiB, full to the last byte" if self.real else "an injected fault"

    @contextmanager
    def full(self) -> Iterator[None]:
        """Nothing can be written, or made durable where the disk is not real."""
        if not self.real:
            with patch("app.files.os.fsync", _refuse):
                yield
            return
        filler = self.folder / "filler"
        try:
            with suppress(OSError), filler.open("wb", buffering=0) as stream:
                for size in (len(_BLOCK), 512, 1):
                    with suppress(OSError):
                        while stream.write(_BLOCK[:size]):
                            pass
            yield
        finally:
            filler.unlink()


def _refuse(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False
