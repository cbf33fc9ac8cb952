"""Streams tensor bytes from the files into memory that the caller owns: no intermediate tensor, no file mapping."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from engine.checkpoint.meter import Meter
from engine.checkpoint.reader_threads import PIECE_BYTES, ReaderThreads, Reading
from engine.checkpoint.weight_files import OpenFile, TensorRead, WeightFiles, open_weights
from engine.contract.checkpoint_headers import TensorEntry


class TensorReader:
    """Reads byte ranges of weight files, large ones with several threads. Keeps files open; one caller at a time."""

    def __init__(self, meter: Meter, open_file: OpenFile = open_weights) -> None:
        self.meter = meter
        self._files = WeightFiles(open_file)
        self._threads = ReaderThreads(meter.count, open_file)

    def read_into(self, entry: TensorEntry, target: memoryview, *, start: int = 0) -> None:
        """Fill `target` (writable bytes) with the tensor's bytes from `start` on.

        Raises:
            ValueError: the range is not inside the tensor.
            ModelFileError: the file ended early or could not be read.
            LoadCancelledError: the load was told to stop.
        """
        read = _checked(TensorRead(entry, start, target))
        if target.nbytes > PIECE_BYTES:
            self.wait(self.start([read]))
        else:
            self.meter.add(self._files.read(read, self.meter.check))

    def start(self, reads: Iterable[TensorRead]) -> Reading:
        """Begin to fill all targets, in this order, and return at once. `wait` for it before they are used or freed."""
        return self._threads.start(map(_checked, reads))

    def wait(self, reading: Reading) -> None:
        """Wait until every byte has arrived.

        Raises:
            ValueError: a range is not inside its tensor.
            ModelFileError: a file ended early or could not be read; nothing of this reading is under way any more.
            LoadCancelledError: the load was told to stop; likewise.
        """
        self._threads.wait(reading, self.meter.poll)

    def close(self) -> None:
        """Give up what was begun and close all files; no thread writes to a target any more."""
        self._threads.close()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _checked(read: TensorRead) -> TensorRead:
    entry, size = read.entry, read.target.nbytes
    if read.start < 0 or read.start + size > entry.nbytes:
        raise ValueError(f"{entry.name}: {size} B from {read.start} on, the tensor has {entry.nbytes} B")
    return read
