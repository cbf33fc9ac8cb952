"""How fast weights are loaded, beside a plain sequential read of the same files on the same disk in the same run.

    python -m tests.bench.load_rate [--rounds 5] [--folder DIR] [--no-cold]

Writes a random checkpoint of 3.9 GB (removed at the end; --folder keeps it and takes it again) and repeats, with files
that the system still holds ("warm") and with files that it was made to forget ("cold"):

- read: each file from beginning to end, 8 MiB at a time, into the same 8 MiB, by one thread;
- keep: the same into fresh memory of large pages that holds all of it, which is what any loader has to do;
- limit: by all threads, into such memory that was touched before the clock starts: no copy is faster;
- load: the engine, all layers locked, from the first weight file it opens to the last layer that is locked; the dense
  part is moved into the model and the KV cache is made in between.

The aim: a load is at least 0.9 times as fast as "read" where the disk is what limits both (cold), and as "keep" where
memory does (warm): "read" of a file in memory never leaves the CPU's caches and touches no fresh page, so no load can
keep up with it, as "limit" shows. The medians decide; exit code 1 if one is below. All rounds are printed.

Fresh memory of a virtual machine may have to come from its host first, which can be a hundred times slower than
touching it. So this program holds nearly all free memory, and gives back as much as it measures with right before; that
helps mostly, not always, and "keep" and "load" suffer alike.
"""

import argparse
import mmap
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import psutil

from engine.contract.units import MIB
from engine.threads import prepare_threads

prepare_threads()  # before torch

from app.planning.planner import make_plan  # noqa: E402
from app.planning.wishes import Wishes  # noqa: E402
from engine.banks.cpu_device import CpuDevice  # noqa: E402
from engine.checkpoint.reader_threads import THREADS  # noqa: E402
from engine.checkpoint.weight_files import open_weights  # noqa: E402
from engine.contract.checkpoint import read_shape  # noqa: E402
from engine.contract.events import Event, Loading  # noqa: E402
from engine.contract.plan import MemoryPlan, Tier  # noqa: E402
from engine.model.build import Drivers, load_model  # noqa: E402
from engine.system import select  # noqa: E402
from engine.system.protocols import HostBlock  # noqa: E402
from tests.support.big_checkpoint import BigShape, write_checkpoint  # noqa: E402

AIM = 0.9
BLOCK_BYTES = 8 * MIB
MARGIN_BYTES = 1024 * MIB  # other programs take some of what is given back
KEEP_BYTES = 256 * MIB
FREE_BYTES = 1536 * MIB  # left to everybody else
MADV_POPULATE_WRITE = 23


class Ballast:
    """Touched memory, given back right before somebody else takes as much."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._held: mmap.mmap | None = None

    def hold(self) -> None:
        """Take the memory and touch it."""
        if not self._nbytes:
            return
        self._held = mmap.mmap(-1, self._nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._held.madvise(mmap.MADV_HUGEPAGE)
        self._held.madvise(MADV_POPULATE_WRITE)

    def make_way(self) -> None:
        """Give it back."""
        if self._held is not None:
            self._held.close()
        self._held = None


class Rates:
    """Reads and loads one checkpoint, in GB/s."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.safetensors"))
        self.bytes = sum(file.stat().st_size for file in self._files)
        wishes = Wishes(context_tokens=4096)
        self._plan = make_plan(read_shape(folder), select.machine_probe().read(), wishes, model_dir=str(folder))
        self._ballast = Ballast(self.bytes + MARGIN_BYTES)
        self.stages_s: tuple[float, ...] = ()  # of the last load: dense, cache and map, experts
        self._ballast.hold()

    @property
    def plan(self) -> MemoryPlan:
        return self._plan

    def hold_the_rest(self) -> None:
        """Touch the memory that nobody needs, so that what is given back is what is taken next."""
        self._rest = Ballast(max(psutil.virtual_memory().free - FREE_BYTES, 0) // MIB * MIB)
        self._rest.hold()

    def forget(self) -> None:
        """Make the system forget the files."""
        for file in self._files:
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def read(self) -> float:
        """Into the same 8 MiB."""
        target = bytearray(BLOCK_BYTES)
        return self._timed(lambda: self._stream([memoryview(target)]))

    def keep(self) -> float:
        """Into fresh memory that holds all of it."""
        blocks: list[HostBlock] = []
        allocator = select.host_allocator()
        self._ballast.make_way()

        def work() -> None:
            blocks.extend(allocator.allocate(KEEP_BYTES) for _ in range(-(-self.bytes // KEEP_BYTES)))
            self._stream([block.buffer for block in blocks])

        rate = self._timed(work)
        for block in blocks:
            block.free()
        self._ballast.hold()
        return rate

    def limit(self) -> float:
        """By all threads into memory that was touched before."""
        self._ballast.make_way()
        blocks = [select.host_allocator().allocate(file.stat().st_size) for file in self._files]
        for block in blocks:
            block.populate()
        todo = iter(
            [
                (file, start, block.buffer[start : start + BLOCK_BYTES])
                for file, block in zip(self._files, blocks, strict=True)
                for start in range(0, block.nbytes, BLOCK_BYTES)
            ]
        )
        taking = threading.Lock()

        def work() -> None:
            while True:
                with taking:
                    found = next(todo, None)
                if found is None:
                    return
                file, start, target = found
                with file.open("rb", buffering=0) as stream:
                    stream.seek(start)
                    while target and (got := stream.readinto(target)):
                        target = target[got:]

        def together() -> None:
            threads = [threading.Thread(target=work) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        rate = self._timed(together)
        for block in blocks:
            block.free()
        self._ballast.hold()
        return rate

    def load(self) -> float:
        """By the engine."""
        times: dict[str, float] = {}

        def report(event: Event) -> None:
            if isinstance(event, Loading):
                times.setdefault(event.stage, time.perf_counter())

        def opening(file: Path) -> BinaryIO:
            times.setdefault("first byte", time.perf_counter())
            return open_weights(file)

        drivers = Drivers(CpuDevice(), select.host_allocator(), select.page_locker(), opening)
        self._ballast.make_way()
        model = load_model(self._plan, report=report, cancelled=lambda: False, drivers=drivers)
        settled = [layer.settled for layer in model.residency().layers]
        model.close()
        self._ballast.hold()
        assert settled == [Tier.LOCKED] * len(settled), f"not all layers were locked: {settled}"
        stages = ("first byte", "cache", "experts", "checking")
        self.stages_s = tuple(times[after] - times[before] for before, after in pairwise(stages))
        return self.bytes / sum(self.stages_s) / 1e9

    def _timed(self, work: Callable[[], None]) -> float:
        began = time.perf_counter()
        work()
        return self.bytes / (time.perf_counter() - began) / 1e9

    def _stream(self, targets: list[memoryview]) -> None:
        place, start = 0, 0
        for file in self._files:
            with file.open("rb", buffering=0) as stream:
                while got := stream.readinto(targets[place][start : start + BLOCK_BYTES]):
                    start += got
                    if start == targets[place].nbytes:
                        place, start = (place + 1) % len(targets), 0


def _round(rates: Rates, number: int, *, cold: bool) -> dict[str, float]:
    """One of each in any order: one that comes first may have to fetch memory that the next ones find at hand."""
    measures = [("read", rates.read), ("keep", rates.keep), ("limit", rates.limit), ("load", rates.load)]
    found = {}
    random.Random(number).shuffle(measures)
    for name, measure in measures:
        if cold:
            rates.forget()
        found[name] = measure()
    spent = " + ".join(f"{took:.2f}" for took in rates.stages_s)
    print(f"{'cold' if cold else 'warm'} load took {spent} s for dense weights, cache and map, experts")
    return found


def _judge(what: str, rounds: list[dict[str, float]], beside: str) -> bool:
    """Print the rounds and what they come to."""
    for found in rounds:
        print(f"{what} {_listed(found)}")
    rates = {name: statistics.median(found[name] for found in rounds) for name in sorted(rounds[0])}
    print(f"{what} medians: {_listed(rates)}, limit/read {rates['limit'] / rates['read']:.2f}")
    ratio = rates["load"] / rates[beside]
    print(f"{what} {'ok' if ratio >= AIM else 'MISSED'}: load/{beside} {ratio:.2f}, aim {AIM}")
    return ratio >= AIM


def _listed(rates: dict[str, float]) -> str:
    ratios = ", ".join(f"load/{name} {rates['load'] / rates[name]:.2f}" for name in ("read", "keep"))
    return ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items()) + f" GB/s; {ratios}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep the checkpoint here")
    parser.add_argument("--no-cold", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="splitpin-load-") as name:
        folder: Path = options.folder or Path(name) / "model"
        if not folder.exists():
            write_checkpoint(folder, BigShape())
        rates = Rates(folder)
        print(f"{rates.bytes / 1e9:.2f} GB, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        rates.read()
        rates.load()  # imports, caches
        rates.read()
        rates.hold_the_rest()
        right = _judge("warm", [_round(rates, number, cold=False) for number in range(options.rounds)], "keep")
        if not options.no_cold:
            right &= _judge("cold", [_round(rates, number, cold=True) for number in range(options.rounds)], "read")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
