"""Settings of threads and caches that only count before torch is imported. Torch-free: the engine calls it first."""

import os

import psutil

# An idle OpenMP thread spins by default. With one other busy program beside two torch threads that made a token
# take 2,900 ms instead of 80; passive waiting took 110-180 ms.
_PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}

# oneDNN and torch's layer over it keep code for each shape of a product they have seen, 1,024 shapes each. Prompts
# bring new shapes all the time, since each expert gets its own number of rows: three prompts of 512 tokens left 400 MiB
# of such code behind. With 32 it is under 60 MiB; decoding, which knows some ten shapes, is as fast, prefill 8% slower.
_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32", "LRU_CACHE_CAPACITY": "32"}


def prepare_threads(cores: int | None = None) -> int:
    """Set the environment: waiting threads sleep, one core is left to everybody else, compiled code is not piled up.

    What the user has set already stays. `cores` None: the physical cores of this machine.

    Returns:
        The number of threads torch will use.

    Raises:
        ValueError: OMP_NUM_THREADS is set, and its first number (the others are for nested loops) is none above 0.
    """
    if cores is None:
        cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    for name, value in (_PASSIVE | _CACHES).items():
        os.environ.setdefault(name, value)
    asked = os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores - 1)))
    first = asked.split(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        raise ValueError(f"OMP_NUM_THREADS is {asked!r}, not a number of threads")
    return int(first)
