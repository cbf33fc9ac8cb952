"""How much memory may be pinned, and where that number is from.

Windows bounds what a GPU may map of RAM at half of it ("shared GPU memory"), for all processes together; not all of
that can be had at once, and no call tells how much. So a measured value wins over what earlier runs were granted, that
over a reading, a reading over a rule; a refusal that was seen wins over all of them.
"""

from dataclasses import dataclass, replace

from app.planning.terms import Budget, Term, summed
from app.planning.wishes import Wishes
from engine.contract.facts import HardwareFacts, Source
from engine.contract.units import GIB, gib

ASSUMED_SHARE = 0.40  # of RAM; what other GPU programs settled on for Windows. Reports: 43 to 49 % could be pinned
PROBE_MARGIN_SHARE = 10  # a probe in an empty process finds more than a loaded engine gets: a tenth is kept free
_LEAST_MARGIN = 2 * GIB
_MARGIN_SHARE = 0.10
_DEFAULT_MEMLOCK_SHARE = 32  # a limit below a 32nd of RAM is a system's default for locking, not about GPUs


@dataclass(frozen=True, slots=True)
class PinQuota:
    """Most bytes that may be pinned. None: only RAM limits it."""

    bytes: int | None
    source: Source
    reason: str
    terms: tuple[Term, ...] = ()
    ceiling_bytes: int | None = None  # what the operating system would never exceed: half of RAM on Windows
    must_measure: bool = False  # a rule that is known to be far off in both directions
    held_bytes: int = 0  # by other programs now, of the same pool and not in `bytes`

    @property
    def proven(self) -> bool:
        """Whether somebody tried it or decided it, rather than a rule or a reading."""
        return self.source in (Source.MEASURED, Source.LEARNED, Source.USER, Source.SIMULATED)

    @property
    def budget(self) -> Budget:
        return Budget(self.bytes, self.terms)


def pin_quota(facts: HardwareFacts, wishes: Wishes) -> PinQuota:
    """The quota by the strongest source: the user, a measurement, earlier runs, a reading, a rule."""
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
    return _beside_others(facts, _experienced(facts, _expected(facts, ceiling)))


def _beside_others(facts: HardwareFacts, quota: PinQuota) -> PinQuota:
    """What was tried before can be had again only as far as other programs leave it: the pool belongs to all."""
    gpu = facts.cuda_gpu
    if quota.bytes is None or gpu is None or gpu.shared_limit.value is None or gpu.shared_used.value is None:
        return quota
    excess = quota.bytes - max(0, gpu.shared_limit.value - gpu.shared_used.value)
    if excess <= 0:
        return quota
    terms = (*quota.terms, Term("held by other programs now", -excess))
    return replace(quota, bytes=quota.bytes - excess, terms=terms, held_bytes=gpu.shared_used.value)


def _expected(facts: HardwareFacts, ceiling: int | None) -> PinQuota:
    """By a probe, else by what the system says."""
    probed = facts.pin_probed
    if probed.value is not None:
        margin = -(-probed.value // PROBE_MARGIN_SHARE)
        found = summed(Term("pinned by the probe", probed.value), Term("margin", -margin))
        return PinQuota(found.bytes, Source.MEASURED, "measured, less a tenth", found.terms, ceiling)
    return _linux(facts) if facts.os == "linux" else _windows(facts, ceiling)


def _experienced(facts: HardwareFacts, expected: PinQuota) -> PinQuota:
    """What earlier engine runs got: a sum that was granted is possible, one that was refused is not."""
    granted, refused = facts.pin_granted, facts.pin_refused
    most = granted.value or 0
    terms = (Term("pinned by an earlier run", most),)
    source = granted.source or Source.LEARNED
    if refused.value is not None and (expected.bytes is None or expected.bytes >= refused.value):
        reason = f"granted to earlier runs; {gib(refused.value)} was refused"
        return PinQuota(min(most, refused.value), Source.LEARNED, reason, terms, expected.ceiling_bytes)
    if expected.bytes is not None and most > expected.bytes:
        return PinQuota(most, source, granted.detail or "granted to an earlier run", terms, expected.ceiling_bytes)
    return expected


def _ceiling(facts: HardwareFacts) -> int | None:
    gpu = facts.cuda_gpu
    if gpu is not None and gpu.shared_limit.value is not None:
        return gpu.shared_limit.value
    if facts.os == "windows" and facts.ram_total.value is not None:
        return facts.ram_total.value // 2
    return None


def _linux(facts: HardwareFacts) -> PinQuota:
    """Native Linux, containers included: their limit is in the RAM figures.

    NVIDIA's kernel modules pin without asking RLIMIT_MEMLOCK, as far as their source is public; yet a registration was
    reported to end at a limit of an eighth of RAM. So a limit of that order is respected. The defaults of kernels and
    distributions (8 MiB) would leave nothing at all, and PCs with them do pin: such a limit is taken to be about
    mlock alone. If that is wrong, the first run falls back layer by layer, and the quota is learned from it.
    """
    limit, total = facts.memlock_limit.value, facts.ram_total.value
    if limit is None or facts.memlock_unlimited:
        return PinQuota(None, Source.READ, "Linux has no quota; RAM limits")
    if limit < (GIB if total is None else total // _DEFAULT_MEMLOCK_SHARE):
        return PinQuota(None, Source.ASSUMED, f"memlock ({gib(limit)}) is taken not to bind the GPU driver; RAM limits")
    return PinQuota(limit, Source.READ, "memlock", (Term("limit for locked memory (memlock)", limit),), limit)


def _windows(facts: HardwareFacts, ceiling: int | None) -> PinQuota:
    """Windows, and WSL2, whose guest sees neither the RAM nor the limit of its host."""
    gpu, total = facts.cuda_gpu, facts.ram_total.value
    if total is None:
        return PinQuota(0, Source.ASSUMED, "RAM is not known", (), ceiling)
    rule = round(total * ASSUMED_SHARE)
    assumed = (Term(f"{ASSUMED_SHARE:.0%} of RAM", rule),)
    if facts.os == "wsl2":
        reason = "assumed, not measured; in WSL2 it may be far less or more"
        return PinQuota(rule, Source.ASSUMED, reason, assumed, ceiling, must_measure=True)
    limit = gpu.shared_limit.value if gpu is not None else None
    used = gpu.shared_used.value if gpu is not None else None
    if limit is None:
        return PinQuota(rule, Source.ASSUMED, "assumed, not measured", assumed, ceiling)
    margin = max(_LEAST_MARGIN, round(limit * _MARGIN_SHARE))
    terms = (Term("shared GPU memory", limit), Term("used by all programs now", -(used or 0)), Term("margin", -margin))
    left = summed(*terms)
    excess = (left.bytes or 0) - rule
    if excess > 0:
        left = summed(*terms, Term(f"kept to {ASSUMED_SHARE:.0%} of RAM until measured", -excess))
    source = Source.ASSUMED if used is None else Source.READ
    reason = "assumed; use by other programs is not known" if used is None else "read from Windows, not measured"
    return PinQuota(left.bytes, source, reason, left.terms, ceiling, held_bytes=used or 0)
