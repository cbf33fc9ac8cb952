"""Pinning a layer: whole chunks, nothing left after a refusal, and no second try."""

from dataclasses import dataclass, field

import pytest

from engine.banks.pin import Pinning
from engine.system.protocols import PinRefusedError


@dataclass
class Registrar:
    """Accepts so many registrations."""

    accept: int
    ranges: dict[int, int] = field(default_factory=dict)
    calls: int = 0
    error: bool = False

    def register(self, address: int, nbytes: int) -> None:
        self.calls += 1
        if self.calls > self.accept:
            self.error = True
            raise PinRefusedError(asked_bytes=nbytes, code=2, words="out of memory")
        self.ranges[address] = nbytes

    def unregister(self, address: int) -> None:
        del self.ranges[address]

    def clear_error(self) -> None:
        self.error = False


def test_a_layer_is_registered_in_chunks_that_cover_it_exactly() -> None:
    driver = Registrar(accept=9)
    pinning = Pinning(driver, driver.clear_error, chunk_bytes=8192)
    pinning.pin(4096, 20480)
    assert driver.ranges == {4096: 8192, 12288: 8192, 20480: 4096}
    assert (pinning.layers, pinning.pinned_bytes) == (1, 20480)
    pinning.unpin(4096)
    assert driver.ranges == {}
    assert (pinning.layers, pinning.pinned_bytes) == (0, 0)


def test_a_refusal_in_the_middle_of_a_layer_leaves_nothing_registered_and_no_error_behind() -> None:
    driver = Registrar(accept=2)
    pinning = Pinning(driver, driver.clear_error, chunk_bytes=8192)
    with pytest.raises(PinRefusedError, match="out of memory"):
        pinning.pin(4096, 40960)
    assert driver.ranges == {}
    assert not driver.error
    assert pinning.layers == 0


def test_after_the_first_refusal_the_driver_is_not_asked_again() -> None:
    driver = Registrar(accept=0)
    pinning = Pinning(driver, driver.clear_error)
    with pytest.raises(PinRefusedError):
        pinning.pin(4096, 4096)
    with pytest.raises(PinRefusedError, match="not tried again"):
        pinning.pin(8192, 4096)
    assert driver.calls == 1


def test_a_range_of_no_bytes_is_skipped() -> None:
    driver = Registrar(accept=0)
    pinning = Pinning(driver, driver.clear_error)
    pinning.pin(4096, 0)
    pinning.unpin(4096)
    assert driver.calls == 0
