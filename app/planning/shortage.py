"""A pool that is too small, before it becomes an error with fixes."""

from engine.contract.plan import Pool


class Shortage(Exception):  # noqa: N818 - never leaves this package: the planner turns it into an error with fixes
    """A pool is too small for a wish."""

    def __init__(self, pool: Pool, needed_bytes: int, available_bytes: int, what: str = "This split") -> None:
        super().__init__(f"{what}: {pool} needs {needed_bytes} B, has {available_bytes} B")
        self.pool = pool
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
        self.what = what

    @property
    def missing_bytes(self) -> int:
        return self.needed_bytes - self.available_bytes
