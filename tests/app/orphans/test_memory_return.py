"""Waiting for memory after the end of processes."""

from collections.abc import Callable, Iterator

from app.orphans.memory_return import MemoryReturn, wait_for_return
from engine.contract.units import GIB
from engine.system.protocols import MemoryUse


class Clock:
    """Moves only when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def _run(
    readings: Iterator[MemoryUse], expected: int | None, give_up: Callable[[], bool] = lambda: False
) -> tuple[MemoryReturn, Clock]:
    clock = Clock()
    last = MemoryUse(vram_used=20 * GIB, ram_used=40 * GIB, shared_used=30 * GIB)

    def read() -> MemoryUse:
        nonlocal last
        last = next(readings, last)
        return last

    return wait_for_return(
        last, read, expected_vram=expected, give_up=give_up, clock=lambda: clock.now, sleep=clock.sleep
    ), clock


def _use(vram: float, ram: float = 40, shared: float = 30) -> MemoryUse:
    return MemoryUse(vram_used=round(vram * GIB), ram_used=round(ram * GIB), shared_used=round(shared * GIB))


def test_all_three_pools_must_stand_still() -> None:
    back, clock = _run(iter([_use(6), _use(6, 40, 20), _use(6, 30, 2), _use(6, 12, 2), _use(6, 12, 2)]), 14 * GIB)
    assert back.settled
    assert (back.vram_bytes, back.ram_bytes, back.pinned_bytes) == (14 * GIB, 28 * GIB, 28 * GIB)
    assert set(clock.waits) == {0.25}
    assert back.words == "14.0 GiB of VRAM and 28.0 GiB of RAM came back in 1.0 s."


def test_after_a_minute_what_is_missing_is_said_with_its_bytes() -> None:
    back, clock = _run(iter([_use(19)]), 14 * GIB)
    assert not back.settled
    assert 59.5 <= clock.now <= 60.5
    assert back.words.startswith("13.0 GiB of VRAM are still in use.")


def test_without_an_expectation_standing_still_is_enough() -> None:
    back, clock = _run(iter([_use(20), _use(20)]), None)
    assert back.settled
    assert clock.now == 0.25


def test_somebody_who_quits_does_not_wait() -> None:
    back, clock = _run(iter([_use(20)]), 14 * GIB, give_up=lambda: True)
    assert clock.now == 0
    assert not back.settled
