"""Reads pieces of weight files into memory of the caller; neighbours that are small are read at once.

Nobody can call off a read that the system has begun. So reads become smaller where they take long (a share on a slow
network, a stick), and whoever waits is asked between them whether to go on.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import ModelFileError

SMALL_BYTES = 128 << 10  # below, a read of its own costs more than copying the bytes once more, out of the CPU's cache
TOGETHER_BYTES = 512 << 10
GAP_BYTES = 4 << 10  # is read as well where it lies between two small pieces: scales that nobody asks for
FIRST_BYTES = 512 << 10  # the first read; the next one is twice as large if it was quick
LEAST_BYTES = 64 << 10
SLOW_S = 0.2
QUICK_S = 0.05


class TensorRead(NamedTuple):
    """Bytes of a tensor, from `start` on, that belong into `target`, writable bytes."""

    entry: TensorEntry
    start: int
    target: memoryview

    @property
    def offset(self) -> int:
        """Of the first byte, in the file."""
        return self.entry.offset + self.start


OpenFile = Callable[[Path], BinaryIO]
GoOn = Callable[[], None]  # called before each read; what it raises ends the reading


def open_weights(file: Path) -> BinaryIO:
    """A weight file without a buffer: bytes go from the system straight to where they belong."""
    return file.open("rb", buffering=0)


class WeightFiles:
    """Open files of one thread."""

    def __init__(self, open_file: OpenFile = open_weights, clock: Callable[[], float] = time.perf_counter) -> None:
        self._open_file = open_file
        self._clock = clock
        self._open: dict[Path, BinaryIO] = {}
        self._room = memoryview(bytearray())
        self._most_bytes = FIRST_BYTES

    def read(self, piece: TensorRead, go_on: GoOn = lambda: None) -> int:
        """Fill the target; as few bytes as the system gives at once are read on. Returns their number.

        Raises:
            ModelFileError: the file ended early or could not be read.
        """
        entry, size = piece.entry, piece.target.nbytes
        done = self._fill(entry.file, piece.offset, piece.target, go_on)
        if done < size:
            raise ModelFileError(
                f"{entry.file.name} ended inside tensor {entry.name}.",
                "Download the model again.",
                file=entry.file.name,
                expected_bytes=entry.nbytes,
                actual_bytes=piece.start + done,
            )
        return size

    def read_all(self, pieces: Sequence[TensorRead], go_on: GoOn = lambda: None) -> int:
        """Fill all targets of neighbours in one file (see `neighbours`). Returns the number of their bytes.

        Raises:
            ModelFileError: as `read`.
        """
        if len(pieces) == 1:
            return self.read(pieces[0], go_on)
        first, last = pieces[0], pieces[-1]
        span = last.offset + last.target.nbytes - first.offset
        if self._room.nbytes < span:
            self._room = memoryview(bytearray(TOGETHER_BYTES))
        if self._fill(first.entry.file, first.offset, self._room[:span], go_on) < span:
            return sum(self.read(piece, go_on) for piece in pieces)  # says where the file ends
        for piece in pieces:
            start = piece.offset - first.offset
            piece.target[:] = self._room[start : start + piece.target.nbytes]
        return sum(piece.target.nbytes for piece in pieces)

    def _fill(self, file: Path, offset: int, target: memoryview, go_on: GoOn) -> int:
        """Read until the target is full or the file ends; the number of bytes."""
        done, size = 0, target.nbytes
        try:
            stream = self._open.get(file)
            if stream is None:
                stream = self._open[file] = self._open_file(file)
            stream.seek(offset)
            while done < size:
                go_on()
                asked, began_s = min(size - done, self._most_bytes), self._clock()
                got = stream.readinto(target[done : done + asked])  # type: ignore[attr-defined]
                if not got:
                    break
                done += got
                self._learn(asked, self._clock() - began_s)
        except OSError as cause:
            raise ModelFileError(
                f"{file.name} could not be read: {cause.strerror}.",
                "Check the disk, or download the model again.",
                file=file.name,
            ) from cause
        return done

    def _learn(self, nbytes: int, took_s: float) -> None:
        """How much to ask for next, after a read of so many bytes."""
        if took_s > SLOW_S:
            self._most_bytes = max(nbytes // 2, LEAST_BYTES)
        elif took_s < QUICK_S and nbytes == self._most_bytes:
            self._most_bytes *= 2

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()


def neighbours(pieces: Sequence[TensorRead]) -> list[Sequence[TensorRead]]:
    """Cut a list into runs that `read_all` takes: one piece, or small ones that follow each other in one file."""
    runs: list[Sequence[TensorRead]] = []
    begin = 0
    for end in range(1, len(pieces) + 1):
        if end == len(pieces) or not _together(pieces[begin], pieces[end - 1], pieces[end]):
            runs.append(pieces[begin:end])
            begin = end
    return runs


def _together(first: TensorRead, last: TensorRead, following: TensorRead) -> bool:
    """Whether `following` can be read with the run from `first` to `last`."""
    if max(last.target.nbytes, following.target.nbytes) > SMALL_BYTES or first.entry.file != following.entry.file:
        return False
    gap = following.offset - last.offset - last.target.nbytes
    return 0 <= gap <= GAP_BYTES and following.offset + following.target.nbytes - first.offset <= TOGETHER_BYTES
