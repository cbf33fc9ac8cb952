"""RAM, commit, host blocks and locks, asked of Windows itself."""

import ctypes
import os
import platform

import psutil
import pytest

from engine.contract.errors import NotEnoughCommitError
from engine.contract.units import GIB, MIB
from engine.system.protocols import AllocationRefusedError, LockRefusedError
from engine.system.select import host_allocator, live_memory, machine_probe, page_locker

pytestmark = [
    pytest.mark.windows,
    pytest.mark.skipif(os.name != "nt", reason="needs Windows or the Windows interpreter under Wine"),
]


def test_facts_agree_with_psutil_and_with_the_interpreter() -> None:
    facts = machine_probe().read()
    seen = psutil.virtual_memory()
    assert facts.os == "windows"
    assert facts.ram_total.value == seen.total
    assert facts.ram_available.value == pytest.approx(seen.available, abs=2 * GIB)
    assert facts.commit_limit.value is not None
    assert facts.commit_used.value is not None
    assert 0 < facts.commit_used.value < facts.commit_limit.value
    assert facts.commit_limit.value >= facts.ram_total.value - GIB
    assert platform.version().split(".")[-1] in (facts.os_version or "")
    assert facts.cpu
    assert facts.cores_logical == psutil.cpu_count()


def test_no_adapter_is_usable_unless_the_nvidia_driver_knows_it() -> None:
    from engine.system.nvml import Nvml

    nvml = Nvml()
    known = {gpu.uuid for gpu in nvml.gpus()}
    nvml.close()
    facts = machine_probe().read()
    assert {gpu.uuid for gpu in facts.gpus if gpu.cuda} == known


def test_live_memory_agrees_with_the_facts() -> None:
    memory = live_memory()
    use, again = memory.read(), memory.read()
    memory.close()
    facts = machine_probe().read()
    assert use.ram_total == again.ram_total == facts.ram_total.value
    assert use.vram_total == (None if facts.cuda_gpu is None else facts.cuda_gpu.vram_total.value)


def test_a_block_is_aligned_zeroed_and_writable_and_keeps_its_bytes() -> None:
    block = host_allocator().allocate(3 * MIB)
    assert block.address % 65536 == 0
    assert block.nbytes == len(block.buffer) == 3 * MIB
    assert bytes(block.buffer[-4:]) == bytes(4)
    block.buffer[4096:4100] = b"here"
    assert ctypes.string_at(block.address + 4096, 4) == b"here"
    block.populate()
    assert bytes(block.buffer[4096:4100]) == b"here"
    block.free()
    block.free()


def test_free_refuses_while_a_view_is_alive() -> None:
    block = host_allocator().allocate(MIB)
    view = block.buffer[:10]
    with pytest.raises(BufferError):
        block.free()
    view.release()
    assert len(block.buffer) == MIB
    block.free()


def test_more_than_the_commit_limit_is_refused_with_both_numbers() -> None:
    facts = machine_probe().read()
    assert facts.commit_limit.value is not None
    asked = 1 << 46  # below the size of the address space, far above any page file
    with pytest.raises((NotEnoughCommitError, AllocationRefusedError)) as refused:
        host_allocator().allocate(asked)
    assert isinstance(refused.value, NotEnoughCommitError)
    assert refused.value.numbers["needed_bytes"] == asked
    available = refused.value.numbers["available_bytes"]
    assert isinstance(available, int)
    assert 0 <= available <= facts.commit_limit.value


def test_a_lock_is_granted_beyond_the_default_working_set_and_can_be_undone() -> None:
    block, locker = host_allocator().allocate(64 * MIB), page_locker()
    locker.lock(block.address, block.nbytes)
    locker.unlock(block.address, block.nbytes)
    locker.lock(block.address, block.nbytes)
    locker.unlock(block.address, block.nbytes)
    block.free()


def test_a_range_that_is_not_memory_is_refused_with_the_code_of_windows() -> None:
    with pytest.raises(LockRefusedError) as refused:
        page_locker().lock(65536, MIB)
    assert refused.value.code in (5, 87, 487, 998)  # 998 on Windows, 5 under Wine
    assert refused.value.words
