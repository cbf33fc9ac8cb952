"""A Windows that keeps to its working-set rules, for the locker: what Wine lets pass, this refuses."""

from typing_extensions import override

from engine.system.windows_lock import ERROR_NOT_LOCKED, ERROR_WORKING_SET_QUOTA, LockCalls, WorkingSet

PAGE = 4096
VALID, LOCKED = 1, 1 << 22


class SimulatedLockCalls(LockCalls):
    """Locks pages while they fit the minimum working set; writes down every call.

    Args:
        available_bytes: the maximum working set must stay below it, as on Windows.
        shows_locked: whether QueryWorkingSetEx shows the locked bit (Wine does not).
        hungry_bytes: what the system itself takes of the minimum, above the documented small overhead.
        drops: addresses of pages that are silently not locked.
    """

    def __init__(
        self,
        *,
        available_bytes: int = 1 << 40,
        shows_locked: bool = True,
        hungry_bytes: int = 0,
        drops: frozenset[int] = frozenset(),
    ) -> None:
        self.size = WorkingSet(50 * PAGE, 345 * PAGE)
        self.locked: set[int] = set()
        self.journal: list[str] = []
        self._available_bytes = available_bytes
        self._shows_locked = shows_locked
        self._hungry_bytes = hungry_bytes
        self._drops = drops

    @override
    def working_set(self) -> WorkingSet:
        return self.size

    @override
    def set_working_set(self, size: WorkingSet) -> None:
        self.journal.append("size")
        if not size.minimum <= size.maximum < self._available_bytes:
            raise OSError(1450, "too large")
        self.size = size

    @override
    def lock(self, address: int, nbytes: int) -> None:
        self.journal.append("lock")
        pages = set(range(address // PAGE, -(-(address + nbytes) // PAGE)))
        overhead = 8 * PAGE + (self._hungry_bytes if nbytes > PAGE else 0)
        if len(self.locked | pages) * PAGE > self.size.minimum - overhead:
            raise OSError(ERROR_WORKING_SET_QUOTA, "minimum working set too small")
        self.locked |= pages

    @override
    def unlock(self, address: int, nbytes: int) -> None:
        self.journal.append("unlock")
        pages = set(range(address // PAGE, -(-(address + nbytes) // PAGE)))
        if not pages <= self.locked:
            raise OSError(ERROR_NOT_LOCKED, "not locked")
        self.locked -= pages

    @override
    def page_flags(self, addresses: list[int]) -> list[int]:
        shown = self.locked - {address // PAGE for address in self._drops} if self._shows_locked else set()
        return [VALID | (LOCKED if address // PAGE in shown else 0) for address in addresses]
