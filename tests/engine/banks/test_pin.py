"""Pinning a layer: whole chunks, nothing left after a refusal, and no second try."""

from dataclasses import dataclass, field

import pytest
import torch

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


def test_a_layer_that_is_stopped_between_two_chunks_leaves_nothing_registered_and_may_be_pinned_later() -> None:
    driver = Registrar(accept=9)
    pinning = Pinning(driver, driver.clear_error, chunk_bytes=8192)

    def stop() -> None:
        if driver.calls == 2:
            raise KeyboardInterrupt

    pinning.check = stop
    with pytest.raises(KeyboardInterrupt):
        pinning.pin(4096, 40960)
    assert driver.ranges == {}
    pinning.check = lambda: None
    pinning.pin(4096, 40960)
    assert pinning.pinned_bytes == 40960


def _pinned(layers: int, nbytes: int, margin: int, *, chunk: int = 1 << 20) -> Pinning:
    """So many layers, then a refusal of the next one in its second chunk."""
    chunks = -(-nbytes // chunk)
    driver = Registrar(accept=layers * chunks + 1)
    pinning = Pinning(driver, driver.clear_error, chunk_bytes=chunk, margin_bytes=margin)
    for layer in range(layers):
        pinning.pin((layer + 1) << 30, nbytes)
    assert not pinning.owes(nbytes)
    with pytest.raises(PinRefusedError):
        pinning.pin((layers + 1) << 30, nbytes)
    return pinning


def test_after_a_refusal_the_driver_is_owed_a_margin_to_the_nearest_layer() -> None:
    pinning = _pinned(layers=100, nbytes=2 << 20, margin=6 << 20)  # the refused layer gave 1 MiB of the 6 back
    given_back = 0
    while pinning.owes(2 << 20):
        pinning.unpin((100 - given_back) << 30)
        given_back += 1
    assert given_back == 2


def test_the_margin_is_a_sixteenth_of_what_is_pinned_at_most() -> None:
    assert not _pinned(layers=8, nbytes=2 << 20, margin=1 << 30).owes(2 << 20)
    assert _pinned(layers=48, nbytes=2 << 20, margin=1 << 30).owes(2 << 20)


def test_a_layer_whose_bytes_do_not_arrive_is_the_last_one_that_was_tried() -> None:
    driver = Registrar(accept=9)
    pinning = Pinning(driver, driver.clear_error)
    pinning.pin(4096, 8192)
    refusal = pinning.distrust(4096)
    assert "did not arrive" in refusal.sentence
    assert driver.ranges == {}
    with pytest.raises(PinRefusedError, match="not tried again"):
        pinning.pin(4096, 8192)


def test_copies_are_cut_where_two_registrations_of_a_layer_meet() -> None:
    memory = torch.arange(64 * 1024, dtype=torch.int32).view(torch.uint8)
    driver = Registrar(accept=99)
    pinning = Pinning(driver, driver.clear_error, chunk_bytes=4096)
    start = memory.data_ptr()
    pinning.pin(start, 3 * 4096)
    for first, last in ((0, 12288), (100, 4096), (4000, 4200), (4096, 8192), (12288, 20000)):
        source, target = memory[first:last], torch.zeros(last - first, dtype=torch.uint8)
        for into, out_of in pinning.cut(target, source):
            into.copy_(out_of)
            at, end = out_of.data_ptr() - start, out_of.data_ptr() - start + out_of.nbytes
            assert at // 4096 == (end - 1) // 4096 or at >= 3 * 4096
        assert torch.equal(target, source)
    pinning.unpin(start)
    assert len(pinning.cut(torch.zeros(12288, dtype=torch.uint8), memory[:12288])) == 1
