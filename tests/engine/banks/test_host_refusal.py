"""Memory that torch does not get is told by the pool that is too small, with the bytes that are left."""

import pytest

from engine.banks.cpu_device import CpuDevice
from engine.banks.host_refusal import host_refusal
from engine.contract.errors import NotEnoughCommitError, NotEnoughMemoryError, NotEnoughRamError
from engine.contract.units import GIB
from engine.system.protocols import AllocationRefusedError

CAUSE = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory.\nmore lines")


@pytest.mark.parametrize(
    ("ram_left", "commit_left", "error", "sentence"),
    [
        (8 * GIB, 2 * GIB, NotEnoughCommitError, "KV cache needs 3.0 GiB of committed memory (RAM and page file); 2.0"),
        (2 * GIB, 9 * GIB, NotEnoughRamError, "KV cache needs 3.0 GiB of RAM; 2.0 GiB can be used."),
        (2 * GIB, None, NotEnoughRamError, "KV cache needs 3.0 GiB of RAM; 2.0 GiB can be used."),
        (8 * GIB, None, AllocationRefusedError, "3.0 GiB could not be allocated: RuntimeError: [enforce fail]"),
    ],
)
def test_the_pool_with_too_little_left_is_named(
    ram_left: int, commit_left: int | None, error: type[Exception], sentence: str
) -> None:
    found = host_refusal(3 * GIB, "KV cache", CAUSE, lambda: (ram_left, commit_left))
    assert type(found) is error
    assert found.sentence.startswith(sentence)


def test_a_cpu_that_has_not_so_much_says_what_it_has() -> None:
    device = CpuDevice()
    with pytest.raises((NotEnoughMemoryError, AllocationRefusedError)) as refused:
        device.allocate(1 << 60, "KV cache")
    assert device.allocated == {}, "nothing is counted"
    assert refused.value.numbers.get("available_bytes") != 0, "no number that nobody read"
