"""Which copies bring the wanted experts of a layer to the GPU. Pure: engine/experts/ring.py carries them out."""

from collections.abc import Iterator, Sequence

from engine.contract.steps import StepRates


def gap_experts(record_bytes: int, rates: StepRates | None, *, staged: bool) -> int:
    """How many unwanted experts between two wanted ones are copied along, because a second copy would cost more.

    0 without rates: nothing is copied that nobody asked for.
    """
    if rates is None or not record_bytes:
        return 0
    each = record_bytes / rates.copy_bytes_s + (record_bytes / rates.stage_bytes_s if staged else 0.0)
    return int(rates.copy_s / each)


def runs(experts: Sequence[int], gap: int, most: int) -> Iterator[tuple[int, int]]:
    """Copies that bring these experts (ascending): first expert and count, with up to `gap` unwanted ones in between.

    No copy is longer than `most`. Where a whole layer is wanted these are its parts, back to back.
    """
    if most < 1:
        raise ValueError(f"most must be >= 1, got {most}")
    first = last = None
    for expert in experts:
        if first is None or last is None:
            first = last = expert
        elif expert - last - 1 <= gap and expert - first < most:
            last = expert
        else:
            yield first, last - first + 1
            first = last = expert
    if first is not None and last is not None:
        yield first, last - first + 1
