"""Events on the pipe: in order, from any thread, and whatever the reader does."""

import os
import threading
from collections.abc import Iterator

import pytest

from engine.contract.events import Event, Heartbeat, RequestStarted, Stopped
from engine.contract.wire import decode_event
from engine.serve import event_writer
from engine.serve.event_writer import FEW_WAITING, EventWriter

PATIENCE_S = 20.0


class Pipe:
    """Both ends, the events of an engine between them."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self.broken = threading.Semaphore(0)
        self.writer = EventWriter(self.write_end, self.broken.release)

    def read(self, count: int) -> list[Event]:
        found = b""
        while found.count(b"\n") < count:
            found += os.read(self.read_end, 65536)
        return [decode_event(line) for line in found.splitlines()]

    def stop_reading(self) -> None:
        os.close(self.read_end)
        self.read_end = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    if made.read_end >= 0:
        made.stop_reading()
    made.writer.write(Stopped())  # finds the pipe broken, and the thread ends
    assert made.writer.flush(PATIENCE_S)
    if made.writer._thread is not None:
        made.writer._thread.join(PATIENCE_S)
    os.close(made.write_end)


def _started(number: int) -> RequestStarted:
    return RequestStarted(request_id=str(number), prompt_tokens=1, reused_tokens=0)


def _beat(number: int) -> Heartbeat:
    return Heartbeat(request_id=str(number), phase="decode", steps=1, step_s=0.1)


def test_events_arrive_whole_and_in_order_from_any_thread(pipe: Pipe) -> None:
    def write(first: int) -> None:
        for number in range(first, first + 50):
            pipe.writer.write(_started(number))

    threads = [threading.Thread(target=write, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    found = [int(event.request_id) for event in pipe.read(200) if isinstance(event, RequestStarted)]
    for thread in threads:
        thread.join(PATIENCE_S)
    for number in range(4):
        mine = [one for one in found if one // 100 == number]
        assert mine == list(range(100 * number, 100 * number + 50))
    assert pipe.writer.flush(PATIENCE_S)


def test_a_reader_that_stands_still_holds_nobody_up_and_loses_only_progress(pipe: Pipe) -> None:
    for number in range(3000):  # a pipe holds 64 KiB
        pipe.writer.write(_beat(number))
        if not number % 10:
            pipe.writer.write(_started(number))
    assert not pipe.writer.flush(0.0)
    written = [event for event in pipe.read(300) if isinstance(event, RequestStarted)]
    while len(written) < 300:
        written += [event for event in pipe.read(1) if isinstance(event, RequestStarted)]
    assert [event.request_id for event in written] == [str(number) for number in range(0, 3000, 10)]
    assert pipe.writer._dropped > 100


def test_what_nobody_ever_reads_does_not_pile_up(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "MOST_WAITING", 2 * FEW_WAITING)
    for number in range(5000):
        pipe.writer.write(_started(number))
        assert len(pipe.writer._waiting) <= 2 * FEW_WAITING
    assert pipe.writer._dropped > 0


def test_a_pipe_that_is_gone_is_told_once(pipe: Pipe) -> None:
    pipe.stop_reading()
    for number in range(5):
        pipe.writer.write(_started(number))
    assert pipe.broken.acquire(timeout=PATIENCE_S)
    pipe.writer.write(_started(9))
    assert pipe.writer.flush(PATIENCE_S)
    assert not pipe.broken.acquire(blocking=False)
