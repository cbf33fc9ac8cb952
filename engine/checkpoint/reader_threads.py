"""Threads that read pieces of weight files in the order of the files, each through file handles of its own.

Reads that are under way at the same time are near each other, so that the disk never jumps far. The first touch of
fresh memory, which costs as much as the copy, is shared out between the threads as well; `pace` says how many they are.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from engine.checkpoint.meter import LoadCancelledError
from engine.checkpoint.pace import Pace
from engine.checkpoint.weight_files import OpenFile, TensorRead, WeightFiles, neighbours, open_weights
from engine.contract.errors import forget_locals

PIECE_BYTES = 4 << 20  # one read: 0.1 s on a slow disk (50 MB/s), so that a cancel is heard in time
BATCH_BYTES = 16 << 20  # what a thread takes at once: neighbours in the file, so that it reads ahead
THREADS = max(1, min(4, os.cpu_count() or 1))  # more than there are cores halved the rate
POLL_S = 0.05


class Reading:
    """Reads that were handed to the threads."""

    def __init__(self, pieces: Iterator[TensorRead]) -> None:
        self.pieces = pieces
        self.exhausted = False  # all pieces are given out
        self.dropped = False
        self.busy = 0  # threads that have a batch of it
        self.error: BaseException | None = None

    @property
    def over(self) -> bool:
        """No thread touches its memory any more."""
        return self.exhausted and not self.busy

    def check(self) -> None:
        """Raise LoadCancelledError if nobody wants it any more."""
        if self.dropped:
            raise LoadCancelledError

    def drop(self) -> None:
        """Leave out what no thread has begun."""
        self.exhausted = self.dropped = True
        self.pieces = iter(())


class ReaderThreads:
    """The threads. They start with the first reading; `close` ends them, whatever is left."""

    def __init__(
        self, count: Callable[[int], None], open_file: OpenFile = open_weights, threads: int = THREADS
    ) -> None:
        """`count` hears of read bytes, in the threads."""
        self._pace = Pace(threads)
        self._active = 0
        self._count = count
        self._open_file = open_file
        self._threads = threads
        self._running: list[threading.Thread] = []
        self._queue: deque[Reading] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def start(self, reads: Iterable[TensorRead]) -> Reading:
        """Begin to read; `reads` come in the order of the files and are asked for one by one, in the threads."""
        reading = Reading(_pieces(reads))
        with self._changed:
            self._queue.append(reading)
            self._changed.notify_all()
        while len(self._running) < self._threads:
            thread = threading.Thread(target=self._work, name=f"reader {len(self._running) + 1}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no memory for its stack, or too many threads
                if not self._running:
                    raise
                break
            self._running.append(thread)
        return reading

    def wait(self, reading: Reading, poll: Callable[[], None]) -> None:
        """Wait for the last byte; `poll` is called all the while, and ends the reading by raising.

        Raises:
            ModelFileError: a file ended early or could not be read.
        """
        try:
            poll()
            while not self._over(reading):
                poll()
        except BaseException:
            self._drop(reading)
            raise
        if reading.error is not None:
            error, reading.error = reading.error, None
            raise error

    def close(self) -> None:
        """End the threads after the reads that are under way."""
        with self._changed:
            self._closed = True
            for reading in self._queue:
                reading.drop()
            self._queue.clear()
            self._changed.notify_all()
        for thread in self._running:
            thread.join()
        self._running.clear()

    def _over(self, reading: Reading) -> bool:
        with self._changed:
            if not reading.over:
                self._changed.wait(POLL_S)
            return reading.over

    def _drop(self, reading: Reading) -> None:
        with self._changed:
            reading.drop()
            while not reading.over:
                self._changed.wait()

    def _work(self) -> None:
        files = WeightFiles(self._open_file)
        while (found := self._next()) is not None:
            reading, batch = found
            del found
            error: BaseException | None = None
            began_s, began_cpu_s = time.perf_counter(), time.thread_time()
            try:
                self._read(files, reading, batch)
            except BaseException as why:  # noqa: BLE001 - told in the thread that waits
                error = why
                forget_locals(error)  # nobody may wait for this reading, and then its error would keep the views
            del batch  # the views of memory that may be given back
            self._done(reading, error, time.thread_time() - began_cpu_s, time.perf_counter() - began_s)
            del error, reading
        files.close()

    def _read(self, files: WeightFiles, reading: Reading, batch: list[TensorRead]) -> None:
        for pieces in neighbours(batch):
            self._count(files.read_all(pieces, reading.check))

    def _next(self) -> tuple[Reading, list[TensorRead]] | None:
        """The next batch; None: it is time to end."""
        with self._changed:
            while not self._closed:
                while self._queue and self._active < self._pace.allowed:
                    reading = self._queue[0]
                    batch = self._batch(reading)
                    if reading.exhausted:
                        self._queue.popleft()
                    if batch:
                        reading.busy += 1
                        self._active += 1
                        return reading, batch
                    self._changed.notify_all()
                self._changed.wait()
            return None

    def _batch(self, reading: Reading) -> list[TensorRead]:
        batch: list[TensorRead] = []
        size = 0
        try:
            while size < BATCH_BYTES:
                piece = next(reading.pieces, None)
                if piece is None:
                    reading.exhausted = True
                    break
                batch.append(piece)
                size += piece.target.nbytes
        except Exception as why:  # noqa: BLE001 - likewise: whoever names the reads has failed
            reading.error = reading.error or why
            reading.drop()
            batch.clear()
        return batch

    def _done(self, reading: Reading, error: BaseException | None, cpu_s: float, wall_s: float) -> None:
        with self._changed:
            self._active -= 1
            before = self._pace.allowed
            self._pace.note(cpu_s, wall_s)
            if self._pace.allowed > before:
                self._changed.notify_all()
            reading.busy -= 1
            if error is not None:
                reading.error = reading.error or error
                reading.drop()
                with suppress(ValueError):
                    self._queue.remove(reading)
            if reading.over:
                self._changed.notify_all()


def _pieces(reads: Iterable[TensorRead]) -> Iterator[TensorRead]:
    """The reads, none of them longer than a piece."""
    for read in reads:
        for done in range(0, read.target.nbytes, PIECE_BYTES):
            yield TensorRead(read.entry, read.start + done, read.target[done : done + PIECE_BYTES])
