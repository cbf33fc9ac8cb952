"""How much can be pinned: tried out in a process of its own, which nothing else depends on.

    python -m engine.system.pin_probe [--need BYTES] [--vram BYTES] [--gpu UUID] [--time-s 60]

Grows chunk by chunk and stops early. The first refusal ends it: a driver that has refused once may refuse everything
after that in the same process, smaller amounts too. One line of JSON a step, so that a probe that is ended still
leaves a lower bound.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from engine.contract.errors import NotEnoughCommitError, SplitpinError
from engine.contract.probe import ProbeLine, StopReason
from engine.contract.units import GIB, MIB
from engine.system.protocols import AllocationRefusedError, HostAllocator, HostBlock, PinRefusedError, PinRegistrar

FIRST_CHUNK_BYTES = 256 * MIB  # the wall of WSL2 has been seen between 0.75 and 1 GiB
CHUNK_BYTES = 512 * MIB  # one registration stalls every other CUDA call of the machine for as long as it takes
SMALL_STEPS_BYTES = GIB
VRAM_CHUNK_BYTES = GIB
TIME_S = 60.0
_LEAST_RAM_BYTES = 3 * GIB
_LEAST_RAM_SHARE = 0.08


class ProbeDriver(PinRegistrar, Protocol):
    """Pins, and holds GPU memory as a loaded engine would."""

    def hold_vram(self, nbytes: int) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop. Bytes; `need_bytes` None: only the other limits stop it."""

    need_bytes: int | None = None
    vram_bytes: int = 0
    time_s: float = TIME_S


@dataclass(frozen=True, slots=True)
class Memory:
    """What the machine has, asked anew before every step."""

    total: int
    available: Callable[[], int]

    @property
    def floor(self) -> int:
        """RAM that stays with other programs."""
        return max(_LEAST_RAM_BYTES, round(self.total * _LEAST_RAM_SHARE))


def probe(
    driver: ProbeDriver,
    allocator: HostAllocator,
    memory: Memory,
    limits: Limits,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ProbeLine]:
    """Pin more and more; the last line has `stopped`. Everything is given back at the end."""
    began = clock()
    blocks: list[HostBlock] = []
    held = _hold_vram(driver, limits.vram_bytes)

    def line(stopped: StopReason | None = None, refused: int | None = None, words: str = "") -> ProbeLine:
        return ProbeLine(
            pinned_bytes=sum(block.nbytes for block in blocks),
            vram_bytes=held,
            elapsed_s=max(clock() - began, 0),
            stopped=stopped,
            refused_bytes=refused,
            words=words,
        )

    try:
        while True:
            now = line()
            yield now
            chunk = FIRST_CHUNK_BYTES if now.pinned_bytes < SMALL_STEPS_BYTES else CHUNK_BYTES
            if (enough := _enough(now, chunk, memory, limits)) is not None:
                yield line(enough)
                return
            try:
                block = allocator.allocate(chunk)
            except (AllocationRefusedError, NotEnoughCommitError) as refusal:
                yield line("ram", words=refusal.sentence)
                return
            try:
                block.populate()  # registering untouched pages is slow
                driver.register(block.address, block.nbytes)
            except PinRefusedError as refusal:
                block.free()
                words = refusal.words if refusal.code is None else f"{refusal.words} (code {refusal.code})"
                yield line("refused", now.pinned_bytes + chunk, words)
                return
            blocks.append(block)
    finally:
        for block in reversed(blocks):
            driver.unregister(block.address)
            block.free()


def _enough(now: ProbeLine, chunk: int, memory: Memory, limits: Limits) -> StopReason | None:
    """Why not to pin a chunk of so many bytes more; None: go on."""
    if limits.need_bytes is not None and now.pinned_bytes >= limits.need_bytes:
        return "need"
    if now.elapsed_s >= limits.time_s:
        return "time"
    return "ram" if memory.available() - chunk < memory.floor else None


def _hold_vram(driver: ProbeDriver, nbytes: int) -> int:
    """Take GPU memory piece by piece; a refusal ends it, and what is held counts."""
    held = 0
    while held < nbytes:
        piece = min(VRAM_CHUNK_BYTES, nbytes - held)
        try:
            driver.hold_vram(piece)
        except AllocationRefusedError:
            break
        held += piece
    return held


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the child; returns 0, or 2 where it cannot begin."""
    parser = argparse.ArgumentParser(prog="python -m engine.system.pin_probe", description=__doc__)
    parser.add_argument("--need", type=int, metavar="BYTES", help="stop when so much is pinned")
    parser.add_argument("--vram", type=int, default=0, metavar="BYTES", help="GPU memory to hold meanwhile")
    parser.add_argument("--gpu", metavar="UUID", help="as NVML names it; default: the first one")
    parser.add_argument("--time-s", type=float, default=TIME_S, metavar="S", help="stop after so many seconds")
    options = parser.parse_args(arguments)
    try:
        _run(Limits(options.need, options.vram, options.time_s), options.gpu)
    except SplitpinError as error:
        _print(ProbeLine(problem=error.problem))
        return 2
    return 0


def _run(limits: Limits, gpu_uuid: str | None) -> None:
    from engine.system.cuda_driver import CudaDriver
    from engine.system.select import host_allocator, machine_memory

    total, available = machine_memory()
    driver = CudaDriver(gpu_uuid)
    try:
        for line in probe(driver, host_allocator(), Memory(total, available), limits):
            _print(line)
    finally:
        driver.close()


def _print(line: ProbeLine) -> None:
    sys.stdout.write(line.model_dump_json() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
