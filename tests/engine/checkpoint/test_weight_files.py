"""Small neighbours are read at once: every byte in its place, the same errors as one by one."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.checkpoint import weight_files
from engine.checkpoint.meter import LoadCancelledError
from engine.checkpoint.weight_files import (
    FIRST_BYTES,
    GAP_BYTES,
    SMALL_BYTES,
    TOGETHER_BYTES,
    OpenFile,
    TensorRead,
    WeightFiles,
    neighbours,
    open_weights,
)
from engine.contract.checkpoint_headers import TensorEntry
from engine.contract.errors import ModelFileError
from tests.support.disks import Disk, failing_after

SIZE = 3 << 20
Opened = Callable[..., WeightFiles]  # takes an `OpenFile`
CONTENT = random.Random(11).randbytes(SIZE)


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Makes readers, closed at the end."""
    with ExitStack() as stack:

        def make(open_file: OpenFile = open_weights) -> WeightFiles:
            files = WeightFiles(open_file)
            stack.callback(files.close)
            return files

        yield make


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of random bytes."""
    found = tmp_path / "model.safetensors"
    found.write_bytes(CONTENT)
    return found


def _pieces(file: Path, ranges: list[tuple[int, int]]) -> list[TensorRead]:
    """Reads of [offset, size], each of a tensor of its own that begins 5 bytes earlier."""
    return [
        TensorRead(
            TensorEntry(f"t{number}", file, offset - 5, size + 5, "U8", (size + 5,)), 5, memoryview(bytearray(size))
        )
        for number, (offset, size) in enumerate(ranges)
    ]


def test_small_pieces_that_follow_each_other_are_one_read(file: Path, opened: Opened) -> None:
    pieces = _pieces(file, [(100, 1000), (1100, 4), (1104, SMALL_BYTES), (1104 + SMALL_BYTES + GAP_BYTES, 7)])
    assert [len(run) for run in neighbours(pieces)] == [4]
    disk = Disk(lambda _: None)
    assert opened(disk.open).read_all(pieces) == sum(piece.target.nbytes for piece in pieces)
    assert disk.reads == 1
    for piece in pieces:
        assert piece.target == CONTENT[piece.offset : piece.offset + piece.target.nbytes]


@pytest.mark.parametrize(
    ("ranges", "runs"),
    [
        ([], []),
        ([(5, 10)], [1]),
        ([(5, 10), (15 + GAP_BYTES + 1, 10)], [1, 1]),  # too far
        ([(5, 10), (10, 10)], [1, 1]),  # they overlap
        ([(500, 10), (5, 10)], [1, 1]),  # backwards
        ([(5, SMALL_BYTES + 1), (5 + SMALL_BYTES + 1, 10), (16 + SMALL_BYTES, 10)], [1, 2]),  # large ones go alone
        ([(5, 10), (15, SMALL_BYTES + 1), (16 + SMALL_BYTES, 10)], [1, 1, 1]),
    ],
)
def test_pieces_apart_are_read_apart(file: Path, ranges: list[tuple[int, int]], runs: list[int]) -> None:
    assert [len(run) for run in neighbours(_pieces(file, ranges))] == runs


def test_pieces_of_two_files_are_read_apart(file: Path, tmp_path: Path) -> None:
    pieces = [*_pieces(file, [(5, 10)]), *_pieces(tmp_path / "other", [(15, 10)])]
    assert [len(run) for run in neighbours(pieces)] == [1, 1]


def test_a_run_is_not_longer_than_its_room(file: Path) -> None:
    count = 4 * TOGETHER_BYTES // SMALL_BYTES
    pieces = _pieces(file, [(5 + number * SMALL_BYTES, SMALL_BYTES) for number in range(count)])
    assert [len(run) for run in neighbours(pieces)] == [TOGETHER_BYTES // SMALL_BYTES] * 4


def test_random_pieces_arrive_whatever_the_disk_hands_out_at_once(file: Path, opened: Opened) -> None:
    chance = random.Random(3)
    ranges, at = [], 5
    while at < SIZE - 200_000:
        ranges.append((at, size := chance.choice([1, 2, 700, 700, 5000, 5000, 150_000])))
        at += size + chance.choice([0, 0, 0, 0, 1, GAP_BYTES, GAP_BYTES + 1])
    pieces = _pieces(file, ranges)
    files = opened(Disk(lambda target: chance.randint(1, target.nbytes)).open)
    runs = neighbours(pieces)
    assert sum(map(files.read_all, runs)) == sum(size for _, size in ranges)
    assert len(runs) < len(pieces)
    for piece, (offset, size) in zip(pieces, ranges, strict=True):
        assert piece.target == CONTENT[offset : offset + size]


def test_a_file_that_ends_inside_a_run_names_the_tensor_it_ends_in(file: Path, opened: Opened) -> None:
    pieces = _pieces(file, [(SIZE - 25, 10), (SIZE - 15, 10), (SIZE - 5, 10)])
    with pytest.raises(ModelFileError, match="ended inside tensor t2") as caught:
        opened().read_all(pieces)
    assert (caught.value.numbers["expected_bytes"], caught.value.numbers["actual_bytes"]) == (15, 10)


def test_a_disk_error_inside_a_run_is_told(file: Path, opened: Opened) -> None:
    with pytest.raises(ModelFileError, match="Input/output error"):
        opened(failing_after(5, "error").open).read_all(_pieces(file, [(5, 10), (15, 10)]))


def test_room_for_runs_is_made_only_when_there_is_one(file: Path, opened: Opened) -> None:
    files = opened()
    files.read_all(_pieces(file, [(5, 10)]))
    assert files._room.nbytes == 0
    assert weight_files.TOGETHER_BYTES >= SMALL_BYTES + GAP_BYTES


def test_on_a_slow_disk_reads_become_smaller_so_that_a_stop_is_heard_soon(file: Path) -> None:
    """A share that gives 1 MiB a second: after a second at most, whoever waits is asked again."""
    now = [0.0]
    asked: list[tuple[float, int]] = []

    def answer(target: memoryview) -> None:
        asked.append((now[0], target.nbytes))
        now[0] += target.nbytes / (1 << 20)

    files = WeightFiles(Disk(answer).open, clock=lambda: now[0])
    (piece,) = _pieces(file, [(5, SIZE - 5)])
    files.read(piece)
    files.close()
    assert piece.target == CONTENT[5:]
    assert max(size for _, size in asked) <= FIRST_BYTES
    assert asked[1][1] < FIRST_BYTES and asked[2][1] <= 256 << 10


def test_on_a_quick_disk_reads_become_whole_pieces(file: Path) -> None:
    disk = Disk(lambda target: None)
    files = WeightFiles(disk.open, clock=lambda: 0.0)
    for piece in _pieces(file, [(5, SIZE - 5)] * 3):
        files.read(piece)
    files.close()
    assert disk.reads == 6  # 512 KiB, 1 MiB and what is left; 2 MiB and what is left; all at once


def test_who_waits_is_asked_before_every_read(file: Path, opened: Opened) -> None:
    def go_on() -> None:
        if disk.reads == 3:
            raise LoadCancelledError

    disk = Disk(lambda target: 1000)
    with pytest.raises(LoadCancelledError):
        opened(disk.open).read(_pieces(file, [(5, SIZE - 5)])[0], go_on)
    assert disk.reads == 3
