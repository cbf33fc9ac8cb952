"""Streams tensor bytes from the files into memory that the caller owns: no intermediate tensor, no file mapping."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import ModelFileError

CHUNK_BYTES = 8 << 20  # one read; on a slow disk (50 MB/s) that is 0.2 s, so a cancel is heard in time


class LoadCancelledError(Exception):
    """Raised inside a load that was told to stop. Whoever catches it frees everything."""


class Meter:
    """Counts loaded bytes, tells about them at most `per_s` times a second, and hears the wish to stop."""

    def __init__(
        self,
        tell: Callable[[int], None],
        cancelled: Callable[[], bool],
        *,
        per_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._cancelled = cancelled
        self._pause_s = 1 / per_s
        self._clock = clock
        self._told_at: float | None = None
        self.done_bytes = 0

    def add(self, nbytes: int) -> None:
        """Count bytes.

        Raises:
            LoadCancelledError: the load was told to stop.
        """
        self.check()
        self.done_bytes += nbytes
        now = self._clock()
        if self._told_at is None or now - self._told_at >= self._pause_s:
            self.tell(now)

    def check(self) -> None:
        """Raise LoadCancelledError if the load was told to stop."""
        if self._cancelled():
            raise LoadCancelledError

    def tell(self, now: float | None = None) -> None:
        """Tell now, whatever the pause."""
        self._told_at = self._clock() if now is None else now
        self._tell(self.done_bytes)


class TensorReader:
    """Reads byte ranges of weight files. Keeps the files open; one thread at a time."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._open: dict[Path, BinaryIO] = {}

    def read_into(self, entry: TensorEntry, target: memoryview, *, start: int = 0) -> None:
        """Fill `target` (writable bytes) with the tensor's bytes from `start` on.

        Raises:
            ValueError: the range is not inside the tensor.
            ModelFileError: the file ended early or could not be read.
            LoadCancelledError: the load was told to stop.
        """
        if start < 0 or start + target.nbytes > entry.nbytes:
            raise ValueError(f"{entry.name}: {target.nbytes} B from {start} on, the tensor has {entry.nbytes} B")
        try:
            stream = self._stream(entry.file)
            stream.seek(entry.offset + start)
            done = 0
            while done < target.nbytes:
                got = stream.readinto(target[done : done + CHUNK_BYTES])  # type: ignore[attr-defined]
                if not got:
                    raise ModelFileError(
                        f"{entry.file.name} ended inside tensor {entry.name}.",
                        "Download the model again.",
                        file=entry.file.name,
                        expected_bytes=entry.nbytes,
                        actual_bytes=start + done,
                    )
                done += got
                self.meter.add(got)
        except OSError as cause:
            raise ModelFileError(
                f"{entry.file.name} could not be read: {cause.strerror}.",
                "Check the disk, or download the model again.",
                file=entry.file.name,
            ) from cause

    def _stream(self, file: Path) -> BinaryIO:
        stream = self._open.get(file)
        if stream is None:
            stream = self._open[file] = file.open("rb", buffering=0)
        return stream

    def close(self) -> None:
        """Close all files."""
        for stream in self._open.values():
            stream.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
