"""The engine's log: every line on disk, the last ones in memory for the report of a crash."""

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

log = logging.getLogger(__name__)

KEPT_LINES = 200
_LONGEST_LINE = 8192  # a program that writes without line feeds must not fill our memory


class LogTail:
    """Drains one stream. A full pipe would stop the engine, so nothing here may stop the draining."""

    def __init__(self, file: Path, on_line: Callable[[str], None]) -> None:
        self._file = file
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines.copy())

    def drain(self, stream: IO[bytes]) -> None:
        """Read until the stream ends. Without a writable disk the lines are kept in memory only."""
        out = self._open()
        try:
            while raw := stream.readline(_LONGEST_LINE):
                line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
                self._lines.append(line)
                self._on_line(line)
                if out is not None:
                    out = self._write(out, line)
        finally:
            if out is not None:
                out.close()

    def _open(self) -> IO[str] | None:
        try:
            return self._file.open("a", encoding="utf-8", newline="\n", buffering=1)
        except OSError as cause:
            log.warning("engine log %s cannot be written: %s", self._file, cause)
            return None

    def _write(self, out: IO[str], line: str) -> IO[str] | None:
        try:
            out.write(f"{line}\n")
        except OSError as cause:
            log.warning("engine log %s is given up: %s", self._file, cause)
            self._lines.append(f"(the log file could not be written: {cause.strerror})")
            return None
        return out
