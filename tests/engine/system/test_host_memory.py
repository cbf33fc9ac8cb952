"""Host blocks and locks, checked against the kernel's own account in /proc."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.contract.errors import NotEnoughCommitError
from engine.contract.units import MIB
from engine.system.protocols import AllocationRefusedError, HostBlock
from engine.system.select import give_back_heap, host_allocator, page_locker, prefer_large_pages

if os.name == "nt":
    pytest.skip("reads /proc", allow_module_level=True)

SIZE = 6 * MIB


def own_bytes(name: str) -> int:
    """VmLck, VmRSS … of this process."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.fixture
def block() -> Iterator[HostBlock]:
    block = host_allocator().allocate(SIZE)
    yield block
    block.free()


def test_a_block_is_page_aligned_zeroed_and_writable(block: HostBlock) -> None:
    assert block.address % 4096 == 0
    assert block.nbytes == len(block.buffer) == SIZE
    assert bytes(block.buffer[-16:]) == bytes(16)
    block.buffer[:5] = b"bytes"
    assert bytes(block.buffer[:6]) == b"bytes\0"


def test_the_address_is_the_address_of_the_buffer(block: HostBlock) -> None:
    import ctypes

    block.buffer[:4] = b"here"
    assert ctypes.string_at(block.address, 4) == b"here"


def test_populate_brings_pages_in_and_keeps_what_was_written() -> None:
    block = host_allocator().allocate(64 * MIB)
    block.buffer[4096:4099] = b"abc"
    before = own_bytes("VmRSS")
    block.populate()
    assert own_bytes("VmRSS") - before >= 60 * MIB
    assert bytes(block.buffer[4096:4099]) == b"abc"
    block.free()


def test_free_gives_the_memory_back_once() -> None:
    block = host_allocator().allocate(64 * MIB)
    block.populate()
    held = own_bytes("VmRSS")
    block.free()
    block.free()
    assert held - own_bytes("VmRSS") >= 60 * MIB


def test_free_refuses_while_a_view_is_alive() -> None:
    block = host_allocator().allocate(SIZE)
    view = block.buffer[:10]
    with pytest.raises(BufferError):
        block.free()
    view.release()
    assert len(block.buffer) == SIZE
    block.free()


def test_more_than_the_machine_has_is_refused_with_both_numbers() -> None:
    with pytest.raises((NotEnoughCommitError, AllocationRefusedError)) as refused:
        host_allocator().allocate(1 << 60)
    assert "1,073,741,824.0 GiB" in refused.value.sentence
    assert refused.value.fix


@pytest.mark.parametrize("nbytes", [0, -1])
def test_nothing_is_not_an_amount(nbytes: int) -> None:
    with pytest.raises(ValueError, match="nbytes"):
        host_allocator().allocate(nbytes)
    with pytest.raises(ValueError, match="nbytes"):
        page_locker().lock(4096, nbytes)


def test_a_lock_shows_in_vmlck_and_goes_with_unlock(block: HostBlock) -> None:
    locker = page_locker()
    before = own_bytes("VmLck")
    locker.lock(block.address, block.nbytes)
    assert own_bytes("VmLck") - before == SIZE
    locker.unlock(block.address, block.nbytes)
    assert own_bytes("VmLck") == before


REFUSED = """
import os, resource
from engine.contract.units import MIB
from engine.system.protocols import LockRefusedError
from engine.system.select import host_allocator, machine_probe, page_locker
from pathlib import Path
block, locker, probe = host_allocator().allocate(6 * MIB), page_locker(), machine_probe()
probe.read()  # imports all it needs while it may
resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 * MIB, 4 * MIB))
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
facts = probe.read()
assert (facts.memlock_limit.value, facts.memlock_unlimited) == (4 * MIB, False), facts
try:
    locker.lock(block.address, block.nbytes)
except LockRefusedError as error:
    print(error.sentence, error.code)
    locked = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmLck")]
    print(locked[0].split()[1])
locker.lock(block.address, 3 * MIB)  # above the old soft limit, below the hard one
print("locked below the limit")
"""


def test_a_lock_above_the_limit_is_refused_with_the_limit_and_locks_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sentence, locked_kib, last = done.stdout.splitlines()
    assert "6.0 MiB could not be locked" in sentence
    assert "4.0 MiB (RLIMIT_MEMLOCK)" in sentence
    assert sentence.endswith("12")
    assert locked_kib == "0"
    assert last == "locked below the limit"


def test_freed_memory_of_the_heap_goes_back_to_the_system() -> None:
    import torch

    kept = [torch.ones(64 * 1024) for _ in range(400)]  # 256 KiB each; freed ones stay in the heap
    kept = kept[-1:]
    before = own_bytes("VmRSS")
    give_back_heap()
    assert own_bytes("VmRSS") <= before
    assert kept[0].sum() == 64 * 1024


def test_a_wish_for_large_pages_changes_no_byte_and_may_be_made_for_any_range(block: HostBlock) -> None:
    block.buffer[:3] = b"abc"
    for start, size in ((0, SIZE), (5, SIZE - 5), (0, 10), (4095, 2)):
        prefer_large_pages(block.address + start, size)
    assert bytes(block.buffer[:4]) == b"abc\0"
