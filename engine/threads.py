"""Thread settings that only count before torch is imported. Torch-free, so that the engine can call it first."""

import os

import psutil

# An idle OpenMP thread spins by default. With one other busy program beside two torch threads that made a token
# take 2,900 ms instead of 80; passive waiting took 110-180 ms.
_PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}


def prepare_threads(cores: int | None = None) -> int:
    """Set the OpenMP environment: waiting threads sleep, and one core is left to everybody else.

    What the user has set already stays. `cores` None: the physical cores of this machine.

    Returns:
        The number of threads torch will use.

    Raises:
        ValueError: OMP_NUM_THREADS is set, and its first number (the others are for nested loops) is none above 0.
    """
    if cores is None:
        cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    for name, value in _PASSIVE.items():
        os.environ.setdefault(name, value)
    asked = os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores - 1)))
    first = asked.split(",")[0].strip()
    if not first.isdecimal() or int(first) < 1:
        raise ValueError(f"OMP_NUM_THREADS is {asked!r}, not a number of threads")
    return int(first)
