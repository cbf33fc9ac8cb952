"""A real NVIDIA GPU: pins, copies and refusals. Needs one; nothing here runs elsewhere."""

from collections.abc import Iterator

import pytest
import torch

from engine.banks.cuda_device import CudaDevice, NoGpuError
from engine.contract.errors import NotEnoughVramError
from engine.system import select
from engine.system.protocols import HostBlock, PinRefusedError

MIB = 1 << 20

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


@pytest.fixture
def block() -> Iterator[HostBlock]:
    """Four filled MiB of host memory."""
    made = select.host_allocator().allocate(4 * MIB)
    made.buffer[:] = bytes(range(256)) * (4 * MIB // 256)
    yield made
    made.free()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an NVIDIA GPU")
def test_without_a_gpu_the_device_says_so() -> None:
    with pytest.raises(NoGpuError, match="cannot use an NVIDIA GPU"):
        CudaDevice(None)


@pytest.mark.gpu
@needs_gpu
def test_pinned_bytes_arrive_through_the_side_stream(block: HostBlock) -> None:
    device = CudaDevice(None)
    device.pin(block.address, block.nbytes)
    source = torch.frombuffer(block.buffer, dtype=torch.uint8)
    assert source.is_pinned()
    target = device.allocate(block.nbytes, "expert slots")
    device.wait(device.copy_in(target, source, device.mark()))
    assert torch.equal(target.cpu(), source)
    device.unpin(block.address)
    assert not source.is_pinned()
    del source


@pytest.mark.gpu
@needs_gpu
def test_a_refused_pin_is_told_with_its_code_and_spoils_no_later_call(block: HostBlock) -> None:
    device = CudaDevice(None)
    with pytest.raises(PinRefusedError, match="code"):
        device.pin(4096, 1 << 40)  # a range that is not mapped
    target = device.allocate(block.nbytes, "expert slots")
    source = torch.frombuffer(block.buffer, dtype=torch.uint8)
    device.wait(device.copy_in(target, source, device.mark()))
    device.synchronize()
    assert torch.equal(target.cpu(), source)
    with pytest.raises(PinRefusedError, match="not tried again"):
        device.pin(block.address, block.nbytes)
    del source


@pytest.mark.gpu
@needs_gpu
def test_more_vram_than_there_is_is_refused_in_words() -> None:
    device = CudaDevice(None)
    with pytest.raises(NotEnoughVramError):
        device.allocate(1 << 44, "KV cache")
    assert device.allocated == {}
