"""How much can be pinned is tried out in small steps, and the first refusal is the last call."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from engine.contract.probe import ProbeLine
from engine.contract.units import GIB, MIB
from engine.system.cuda_driver import CudaDriver, NoCudaError
from engine.system.pin_probe import CHUNK_BYTES, Limits, Memory, probe
from engine.system.protocols import PinRefusedError
from tests.support.pin_drivers import FakePinDriver, PaperAllocator


def _memory(total: int, available: Callable[[], int] | None = None) -> Memory:
    return Memory(total, available or (lambda: total))


def _run(
    driver: FakePinDriver,
    allocator: PaperAllocator | None = None,
    memory: Memory | None = None,
    limits: Limits | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> list[ProbeLine]:
    return list(probe(driver, allocator or PaperAllocator(), memory or _memory(400 * GIB), limits or Limits(), clock))


def test_the_first_refusal_ends_it_and_nothing_is_tried_again() -> None:
    driver = FakePinDriver(quota_bytes=round(13.8 * GIB))
    lines = _run(driver)
    last = lines[-1]
    assert last.stopped == "refused"
    assert last.pinned_bytes <= 13.8 * GIB < last.pinned_bytes + CHUNK_BYTES
    assert last.refused_bytes == last.pinned_bytes + CHUNK_BYTES
    assert last.words == "out of memory (code 2)"
    assert driver.spoilt
    assert len(driver.calls) == len(lines) - 1, "one call a step, and none after the refusal"
    assert [line.stopped for line in lines[:-1]] == [None] * (len(lines) - 1)


def test_every_step_is_a_lower_bound() -> None:
    amounts = [line.pinned_bytes for line in _run(FakePinDriver(quota_bytes=5 * GIB))]
    assert amounts == sorted(amounts)
    assert amounts[0] == 0
    assert amounts[1] == 256 * MIB


def test_the_wall_of_wsl2_is_found_to_a_quarter_of_a_gib() -> None:
    last = _run(FakePinDriver(quota_bytes=800 * MIB))[-1]
    assert last.pinned_bytes == 768 * MIB


def test_chunks_are_small_enough_not_to_stall_the_machine() -> None:
    driver = FakePinDriver(quota_bytes=20 * GIB)
    _run(driver)
    assert max(driver.calls) <= GIB


def test_it_stops_at_what_is_needed() -> None:
    driver = FakePinDriver(quota_bytes=90 * GIB)
    last = _run(driver, limits=Limits(need_bytes=10 * GIB))[-1]
    assert (last.stopped, last.pinned_bytes) == ("need", 10 * GIB)
    assert not driver.spoilt


def test_it_leaves_ram_to_other_programs() -> None:
    driver = FakePinDriver(quota_bytes=90 * GIB)
    memory = _memory(64 * GIB, lambda: 20 * GIB - sum(driver.ranges.values()))
    last = _run(driver, memory=memory)[-1]
    assert last.stopped == "ram"
    assert 20 * GIB - last.pinned_bytes >= memory.floor >= 0.08 * 64 * GIB
    assert _memory(8 * GIB).floor == 3 * GIB


def test_it_stops_when_its_time_is_up() -> None:
    ticks = iter(range(10_000))
    last = _run(FakePinDriver(quota_bytes=900 * GIB), limits=Limits(time_s=60), clock=lambda: float(next(ticks)))[-1]
    assert last.stopped == "time"
    assert 60 <= last.elapsed_s <= 63


def test_gpu_memory_is_held_meanwhile_as_far_as_the_driver_gives_it() -> None:
    driver = FakePinDriver(quota_bytes=GIB, vram_bytes=round(6.5 * GIB))
    assert _run(driver, limits=Limits(vram_bytes=4 * GIB))[-1].vram_bytes == 4 * GIB
    more = FakePinDriver(quota_bytes=GIB, vram_bytes=round(6.5 * GIB))
    assert _run(more, limits=Limits(vram_bytes=20 * GIB))[-1].vram_bytes == 6 * GIB


def test_pages_are_touched_before_they_are_pinned_and_all_is_given_back() -> None:
    driver, allocator = FakePinDriver(quota_bytes=3 * GIB), PaperAllocator()
    _run(driver, allocator)
    assert all(block.populated and block.freed for block in allocator.blocks)
    assert driver.ranges == {}


def test_a_reader_that_goes_away_gets_everything_back_too() -> None:
    driver, allocator = FakePinDriver(quota_bytes=30 * GIB), PaperAllocator()
    steps = probe(driver, allocator, _memory(400 * GIB), Limits())
    for _ in range(5):
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert driver.ranges == {}
    assert all(block.freed for block in allocator.blocks)


def _has_cuda() -> bool:
    try:
        CudaDriver(None).close()
    except NoCudaError:
        return False
    return True


@pytest.mark.gpu
@pytest.mark.skipif(not _has_cuda(), reason="there is no CUDA GPU")
def test_a_real_driver_pins_holds_vram_and_gives_back() -> None:
    from engine.system.select import host_allocator, machine_memory

    total, available = machine_memory()
    driver = CudaDriver(None)
    limits = Limits(need_bytes=2 * GIB, vram_bytes=GIB)
    lines = list(probe(driver, host_allocator(), Memory(total, available), limits))
    driver.close()
    assert lines[-1].stopped == "need"
    assert lines[-1].vram_bytes == GIB


@pytest.mark.skipif(_has_cuda(), reason="there is a CUDA GPU")
def test_the_child_says_in_a_typed_line_that_there_is_no_cuda() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine.system.pin_probe", "--need", "1"], capture_output=True, timeout=60
    )
    assert done.returncode == 2
    line = ProbeLine.model_validate(json.loads(done.stdout))
    assert line.problem is not None
    assert line.problem.kind == "no_cuda"
    assert done.stderr == b""


class _Calls:
    """A library whose functions answer with fixed codes and note their arguments."""

    def __init__(self, **codes: int) -> None:
        self.codes = codes
        self.journal: list[str] = []

    def __getattr__(self, name: str) -> "_Function":
        function = _Function(self, name)
        setattr(self, name, function)
        return function


class _Function:
    restype: object = None
    argtypes: object = None

    def __init__(self, library: _Calls, name: str) -> None:
        self._library, self._name = library, name

    def __call__(self, *arguments: object) -> int:
        self._library.journal.append(self._name)
        if self._name == "cuDeviceGetCount":
            arguments[0]._obj.value = 1  # type: ignore[attr-defined]
        return self._library.codes.get(self._name, 0)


def test_the_driver_is_called_in_order_and_a_refusal_has_its_code() -> None:
    library = _Calls(cuMemHostRegister_v2=2)
    driver = CudaDriver(None, library)  # type: ignore[arg-type]
    assert library.journal[:2] == ["cuInit", "cuDeviceGetCount"]
    assert library.journal.index("cuDevicePrimaryCtxRetain") < library.journal.index("cuCtxSetCurrent")
    with pytest.raises(PinRefusedError) as refused:
        driver.register(4096, 4096)
    assert refused.value.code == 2
    driver.hold_vram(GIB)
    driver.close()
    assert library.journal[-2:] == ["cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2"]


def test_a_driver_that_does_not_start_is_no_cuda() -> None:
    with pytest.raises(NoCudaError, match=r"cuInit answered .* \(code 100\)"):
        CudaDriver(None, _Calls(cuInit=100))  # type: ignore[arg-type]


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(NoCudaError, match="GPU-1234 is not among them"):
        CudaDriver("GPU-1234", _Calls())  # type: ignore[arg-type]
