"""The engine's log: lines on disk, newest kept where there are too many, and the last ones in memory for a report."""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import IO

log = logging.getLogger(__name__)

KEPT_LINES = 200
MOST_BYTES = 8 << 20  # then a new file begins and one earlier file stays: a library that repeats itself fills no disk
_LONGEST_LINE = 8192  # a program that writes without line feeds must not fill our memory


class LogTail:
    """Drains one stream. A full pipe would stop the engine, so nothing here may stop the draining."""

    def __init__(self, file: Path, on_line: Callable[[str], None]) -> None:
        self._file = file
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._out: FileIO | None = None
        self._size = 0
        self._given_up = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines.copy())

    def drain(self, stream: IO[bytes]) -> None:
        """Read until the stream ends. Without a writable disk the lines are kept in memory only."""
        while raw := stream.readline(_LONGEST_LINE):
            line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
            self._lines.append(line)
            self._on_line(line)
            self._write(f"{line}\n".encode())
        self._close()

    def _write(self, line: bytes) -> None:
        if self._given_up:
            return
        try:
            if self._out is not None and self._size + len(line) > MOST_BYTES:
                self._out.close()
                self._out = None
                self._file.replace(self._file.with_stem(f"{self._file.stem}-earlier"))
            if self._out is None:
                self._out = self._file.open("ab", buffering=0)
                self._size = self._out.tell()
            self._out.write(line)
            self._size += len(line)
        except OSError as cause:
            log.warning("engine log %s is given up: %s", self._file, cause)
            self._lines.append(f"(the log file could not be written: {cause.strerror})")
            self._given_up = True
            self._close()

    def _close(self) -> None:
        if self._out is not None:
            with suppress(OSError):
                self._out.close()
            self._out = None
