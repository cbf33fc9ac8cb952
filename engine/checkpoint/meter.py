"""Counts loaded bytes for the progress on screen, and hears the wish to stop."""

import threading
import time
from collections.abc import Callable


class LoadCancelledError(Exception):
    """Raised inside a load that was told to stop. Whoever catches it frees everything."""


class Meter:
    """Counts from any thread; tells and stops in the thread that loads, at most `per_s` times a second."""

    def __init__(
        self,
        tell: Callable[[int], None],
        cancelled: Callable[[], bool],
        *,
        per_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._cancelled = cancelled
        self._pause_s = 1 / per_s
        self._clock = clock
        self._told_at: float | None = None
        self._counting = threading.Lock()
        self._done_bytes = 0

    @property
    def done_bytes(self) -> int:
        return self._done_bytes

    def count(self, nbytes: int) -> None:
        """Count bytes, from any thread."""
        with self._counting:
            self._done_bytes += nbytes

    def add(self, nbytes: int) -> None:
        """Count bytes in the thread that loads, and tell about them when it is time.

        Raises:
            LoadCancelledError: the load was told to stop.
        """
        self.count(nbytes)
        self.poll()

    def poll(self) -> None:
        """Tell when it is time.

        Raises:
            LoadCancelledError: the load was told to stop.
        """
        self.check()
        now = self._clock()
        if self._told_at is None or now - self._told_at >= self._pause_s:
            self.tell(now)

    def check(self) -> None:
        """Raise LoadCancelledError if the load was told to stop."""
        if self._cancelled():
            raise LoadCancelledError

    def tell(self, now: float | None = None) -> None:
        """Tell now, whatever the pause."""
        self._told_at = self._clock() if now is None else now
        self._tell(self._done_bytes)
