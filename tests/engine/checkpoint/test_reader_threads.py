"""Several threads read one file: every byte where it belongs, and nobody writes after a stop or a failure."""

import gc
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.checkpoint import weight_files
from engine.checkpoint.loader import TensorReader
from engine.checkpoint.meter import LoadCancelledError, Meter
from engine.checkpoint.reader_threads import BATCH_BYTES, PIECE_BYTES, THREADS
from engine.checkpoint.weight_files import TensorRead
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import ModelFileError
from tests.support.disks import Disk, failing_after

SIZE = THREADS * BATCH_BYTES + 12345


@pytest.fixture(scope="module")
def content() -> bytes:
    """Random bytes: a piece in the wrong place shows."""
    return random.Random(3).randbytes(SIZE)


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> TensorEntry:
    """One large tensor behind a short header."""
    file = tmp_path_factory.mktemp("weights") / "model.safetensors"
    file.write_bytes(bytes(100) + content)
    return TensorEntry(name="w", file=file, offset=100, nbytes=SIZE, dtype="U8", shape=(SIZE,))


def _meter(cancelled: Callable[[], bool] = lambda: False) -> Meter:
    return Meter(lambda _: None, cancelled)


def _cut(entry: TensorEntry, target: bytearray, sizes: list[int]) -> Iterator[TensorRead]:
    start = 0
    for size in sizes:
        yield TensorRead(entry, start, memoryview(target)[start : start + size])
        start += size


def test_every_byte_of_many_reads_arrives_in_its_place(entry: TensorEntry, content: bytes) -> None:
    chance, sizes = random.Random(5), list[int]()
    while (left := SIZE - sum(sizes)) > 0:
        sizes.append(min(left, chance.choice([0, 1, 999, 70_000, PIECE_BYTES, PIECE_BYTES + 1, 2 * BATCH_BYTES])))
    target, meter = bytearray(SIZE), _meter()
    with TensorReader(meter) as reader:
        reader.wait(reader.start(_cut(entry, target, sizes)))
        assert meter.done_bytes == SIZE
    assert target == content


def test_two_readings_may_be_under_way_and_are_waited_for_in_any_order(entry: TensorEntry, content: bytes) -> None:
    first, second = bytearray(SIZE), bytearray(SIZE)
    with TensorReader(_meter()) as reader:
        begun = reader.start(_cut(entry, first, [SIZE]))
        reader.wait(reader.start(_cut(entry, second, [SIZE])))
        reader.wait(begun)
    assert first == content
    assert second == content


def test_no_reads_are_over_at_once(entry: TensorEntry) -> None:
    with TensorReader(_meter()) as reader:
        reader.wait(reader.start([]))


def test_several_reads_are_under_way_at_once_each_with_a_file_of_its_own(entry: TensorEntry) -> None:
    together = threading.Barrier(THREADS)
    first_reads = threading.Semaphore(THREADS)

    def answer(target: memoryview) -> None:
        if first_reads.acquire(blocking=False):
            together.wait(timeout=60)  # passes only when all threads are inside a read

    disk = Disk(answer)
    with TensorReader(_meter(), disk.open) as reader:
        reader.read_into(entry, memoryview(bytearray(SIZE)))
    assert disk.opened == THREADS


def test_a_system_that_gives_fewer_bytes_than_asked_for_is_asked_again(entry: TensorEntry, content: bytes) -> None:
    target = bytearray(SIZE)
    disk = Disk(lambda asked: max(asked.nbytes // 2, 1))
    with TensorReader(_meter(), disk.open) as reader:
        reader.read_into(entry, memoryview(target))
    assert target == content


def test_a_stop_waits_for_reads_under_way_and_begins_no_others(entry: TensorEntry) -> None:
    """Not even those of a piece that was begun: on a slow disk each takes long."""
    inside, go_on = threading.Semaphore(0), threading.Event()

    def answer(target: memoryview) -> None:
        inside.release()
        go_on.wait(timeout=60)

    def cancelled() -> bool:
        for _ in range(THREADS):
            inside.acquire()
        return True

    disk, meter = Disk(answer), _meter(cancelled)
    with TensorReader(meter, disk.open) as reader:
        reading = reader.start(_cut(entry, bytearray(SIZE), [SIZE]))
        really_drop = reading.drop

        def drop() -> None:
            really_drop()
            go_on.set()

        reading.drop = drop  # type: ignore[method-assign]
        with pytest.raises(LoadCancelledError):
            reader.wait(reading)
    assert disk.reads == THREADS
    assert meter.done_bytes == 0


def test_after_a_stop_the_memory_can_be_given_back(entry: TensorEntry) -> None:
    target = bytearray(SIZE)
    with TensorReader(_meter(lambda: True)) as reader:
        with pytest.raises(LoadCancelledError):
            reader.wait(reader.start(_cut(entry, target, [1000] * (SIZE // 1000))))
        target.clear()  # a BufferError while anybody has a view of it


@pytest.mark.parametrize(
    ("how", "words"), [("error", "could not be read: Input/output error"), ("end", "ended inside")]
)
def test_a_disk_that_fails_in_one_thread_ends_the_reading_in_all(
    entry: TensorEntry, how: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_files, "FIRST_BYTES", PIECE_BYTES)
    target = bytearray(SIZE)
    disk = failing_after(2 * PIECE_BYTES, how)
    with TensorReader(_meter(), disk.open) as reader:
        with pytest.raises(ModelFileError, match=words) as why:
            reader.read_into(entry, memoryview(target))
        assert "model.safetensors" in why.value.sentence
        assert disk.reads <= 2 + THREADS


def test_a_failure_that_nobody_waits_for_keeps_no_memory(entry: TensorEntry) -> None:
    target = bytearray(SIZE)
    gc.disable()  # which would hide it, in its own time
    try:
        with TensorReader(_meter(), failing_after(0, "error").open) as reader:
            unheard = reader.start(_cut(entry, target, [SIZE]))
            while unheard.error is None or not unheard.over:
                time.sleep(0.001)
        target.append(0)  # refused while views of it exist
    finally:
        gc.enable()


def test_a_range_outside_its_tensor_is_told_to_whoever_waits(entry: TensorEntry) -> None:
    reads = [TensorRead(entry, 0, memoryview(bytearray(10))), TensorRead(entry, SIZE - 5, memoryview(bytearray(10)))]
    with TensorReader(_meter()) as reader, pytest.raises(ValueError, match="the tensor has"):
        reader.wait(reader.start(reads))


def test_closing_gives_up_what_nobody_waited_for(entry: TensorEntry) -> None:
    target, before = bytearray(SIZE), threading.active_count()
    reader = TensorReader(_meter())
    reader.start(_cut(entry, target, [1000] * (SIZE // 1000)))
    reader.close()
    target.clear()
    assert threading.active_count() == before


def test_progress_is_told_while_threads_read(entry: TensorEntry) -> None:
    told: list[int] = []
    seen = threading.Event()

    def tell(done: int) -> None:
        told.append(done)
        seen.set()

    disk = Disk(lambda target: seen.wait(timeout=60) and None)  # the first read ends only after something was told
    with TensorReader(Meter(tell, lambda: False), disk.open) as reader:
        reader.read_into(entry, memoryview(bytearray(SIZE)))
    assert told[0] == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a file that is open")
def test_no_file_stays_open(entry: TensorEntry) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with TensorReader(_meter()) as reader:
        reader.read_into(entry, memoryview(bytearray(SIZE)))
        reader.read_into(entry, memoryview(bytearray(10)))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _threads_that_start(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Python's words for a system without memory for the stack of one more thread, or with too many of them."""
    really_start, left = threading.Thread.start, [most]

    def start(self: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        really_start(self)

    monkeypatch.setattr(threading.Thread, "start", start)


def test_where_only_one_thread_can_be_started_it_reads_alone(
    entry: TensorEntry, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    _threads_that_start(monkeypatch, 1)
    target = bytearray(SIZE)
    with TensorReader(_meter()) as reader:
        reader.read_into(entry, memoryview(target))
    assert target == content


def test_where_no_thread_can_be_started_that_is_the_error(entry: TensorEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    _threads_that_start(monkeypatch, 0)
    target = bytearray(SIZE)
    with TensorReader(_meter()) as reader, pytest.raises(RuntimeError, match="can't start new thread"):
        reader.read_into(entry, memoryview(target))
    target.clear()  # a BufferError while anybody has a view of it
