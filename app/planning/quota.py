"""How much memory may be pinned, and where that number is from.

Windows bounds what a GPU may map of RAM at half of it ("shared GPU memory"), for all processes together; not all of
that can be had at once, and no call tells how much. So a measured value wins over a reading, a reading over a rule.
"""

from dataclasses import dataclass

from app.planning.terms import Budget, Term, summed
from app.planning.wishes import Wishes
from engine.contract.facts import HardwareFacts, Source
from engine.contract.units import GIB

ASSUMED_SHARE = 0.40  # of RAM; what other GPU programs settled on for Windows
_LEAST_MARGIN = 2 * GIB
_MARGIN_SHARE = 0.10


@dataclass(frozen=True, slots=True)
class PinQuota:
    """Most bytes that may be pinned. None: only RAM limits it."""

    bytes: int | None
    source: Source
    reason: str
    terms: tuple[Term, ...] = ()
    ceiling_bytes: int | None = None  # what the operating system would never exceed: half of RAM on Windows

    @property
    def proven(self) -> bool:
        """Whether somebody tried it or decided it, rather than a rule or a reading."""
        return self.source in (Source.MEASURED, Source.LEARNED, Source.USER, Source.SIMULATED)

    @property
    def budget(self) -> Budget:
        return Budget(self.bytes, self.terms)


def pin_quota(facts: HardwareFacts, wishes: Wishes) -> PinQuota:
    """The quota by the strongest source: the user, a measurement, a reading, a rule.

    On native Linux the driver pins without a quota of its own; a limit for locked memory is respected where there is
    one, and otherwise RAM alone limits.
    """
    ceiling = _ceiling(facts)
    if wishes.pin_cap_bytes is not None:
        term = Term("limit set in Splitpin", wishes.pin_cap_bytes)
        bound = wishes.simulated_gpu.pin_bytes if wishes.simulated_gpu else wishes.pin_cap_bytes
        return PinQuota(min(bound, wishes.pin_cap_bytes), Source.USER, "set by you", (term,), ceiling)
    if wishes.simulated_gpu is not None:
        size = wishes.simulated_gpu.pin_bytes
        return PinQuota(size, Source.SIMULATED, "of the simulated GPU", (Term("simulated GPU", size),), size)
    measured = facts.pin_measured
    if measured.value is not None and measured.source is not None:
        reason = measured.detail or measured.source.value
        return PinQuota(measured.value, measured.source, reason, (Term("measured", measured.value),), ceiling)
    if facts.os == "linux":
        return _linux(facts)
    return _windows(facts, ceiling)


def _ceiling(facts: HardwareFacts) -> int | None:
    gpu = facts.cuda_gpu
    if gpu is not None and gpu.shared_limit.value is not None:
        return gpu.shared_limit.value
    if facts.os == "windows" and facts.ram_total.value is not None:
        return facts.ram_total.value // 2
    return None


def _linux(facts: HardwareFacts) -> PinQuota:
    limit = facts.memlock_limit.value
    if limit is None or facts.memlock_unlimited:
        return PinQuota(None, Source.READ, "Linux has no quota; RAM limits")
    return PinQuota(limit, Source.READ, "memlock", (Term("limit for locked memory (memlock)", limit),), limit)


def _windows(facts: HardwareFacts, ceiling: int | None) -> PinQuota:
    gpu = facts.cuda_gpu
    limit = gpu.shared_limit.value if gpu is not None else None
    used = gpu.shared_used.value if gpu is not None else None
    margin = max(_LEAST_MARGIN, round((limit or 0) * _MARGIN_SHARE))
    if limit is not None and used is not None:
        read = summed(
            Term("shared GPU memory", limit), Term("used by all programs now", -used), Term("margin", -margin)
        )
        return PinQuota(read.bytes, Source.READ, "read from Windows, not measured", read.terms, ceiling)
    total = facts.ram_total.value
    if total is None:
        return PinQuota(0, Source.ASSUMED, "RAM is not known", (), ceiling)
    assumed = Term(f"{ASSUMED_SHARE:.0%} of RAM", round(total * ASSUMED_SHARE))
    if limit is not None and limit - margin < assumed.bytes:
        read = summed(Term("shared GPU memory", limit), Term("margin", -margin))
        return PinQuota(read.bytes, Source.ASSUMED, "assumed; use by other programs is not known", read.terms, ceiling)
    return PinQuota(assumed.bytes, Source.ASSUMED, "assumed, not measured", (assumed,), ceiling)
