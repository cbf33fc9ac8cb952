"""The simulated GPU refuses like a real one."""

import pytest
import torch

from engine.banks.simulated_device import SimulatedDevice, SimulatedDriver
from engine.contract.errors import NotEnoughVramError
from engine.contract.plan import SimulatedGpu
from engine.system.protocols import PinRefusedError

LIMITS = SimulatedGpu(vram_bytes=1000, pin_bytes=100)


def test_vram_is_refused_beyond_its_size_and_the_refused_bytes_are_not_counted() -> None:
    device = SimulatedDevice(LIMITS)
    device.reserve(600, "weights")
    device.allocate(300, "KV cache")
    with pytest.raises(NotEnoughVramError) as why:
        device.allocate(101, "expert slots")
    assert why.value.numbers == {"needed_bytes": 101, "available_bytes": 100}
    assert device.allocated == {"weights": 600, "KV cache": 300}


def test_released_bytes_can_be_had_again() -> None:
    device = SimulatedDevice(LIMITS)
    device.allocate(1000, "KV cache")
    device.release(1000, "KV cache")
    assert torch.all(device.allocate(1000, "expert slots") == 0)


def test_a_driver_that_refused_once_refuses_smaller_ranges_too() -> None:
    driver = SimulatedDriver(100)
    driver.register(0, 60)
    with pytest.raises(PinRefusedError, match="60 B of 100 B are pinned"):
        driver.register(4096, 41)
    with pytest.raises(PinRefusedError):
        driver.register(8192, 1)


def test_an_error_that_nobody_cleared_is_reported_by_the_next_copy() -> None:
    device = SimulatedDevice(LIMITS)
    with pytest.raises(PinRefusedError):
        device.driver.register(0, 101)
    with pytest.raises(RuntimeError, match="stale error"):
        device.copy_in(torch.zeros(1), torch.ones(1), None)
    device.driver.clear_error()
    target = torch.zeros(1)
    device.copy_in(target, torch.ones(1), None)
    assert target.item() == 1


def test_registering_a_range_twice_or_no_bytes_is_an_error_as_in_cuda() -> None:
    driver = SimulatedDriver(100)
    driver.register(0, 10)
    with pytest.raises(PinRefusedError, match="code 712"):
        driver.register(0, 10)
    with pytest.raises(PinRefusedError, match="code 1"):
        SimulatedDriver(100).register(0, 0)


def test_a_copy_that_spans_two_registrations_is_an_invalid_argument_as_in_cuda() -> None:
    driver = SimulatedDriver(1 << 20)
    driver.register(4096, 4096)
    driver.register(8192, 4096)
    driver.check_copy(4096, 4096)
    with pytest.raises(RuntimeError, match="spans 2 registrations"):
        driver.check_copy(8000, 400)
