"""How many threads read at once: many where memory is what takes the time, few where the disk is.

A disk is fastest when it is read in order by few. Where its bytes come faster than one thread can copy them into fresh
memory (a fast disk, or a file that the system still holds), more threads are faster.
"""

from engine.system import select

WAITS_BELOW = 0.25  # share of its time that a thread computes: below, it waits for the disk
COPIES_ABOVE = 0.6
WINDOW_S = 0.05  # for each thread


class Pace:
    """Begins with all threads and follows what they report. Not for several threads at once: the caller locks."""

    def __init__(self, most: int, least: int | None = None) -> None:
        """`least` None: what the system needs, see `select.least_readers`."""
        self._most = most
        self._least = select.least_readers() if least is None else least
        self._cpu_s = self._wall_s = 0.0
        self.allowed = most

    def note(self, cpu_s: float, wall_s: float) -> None:
        """One thread has read for so long, and was computing for `cpu_s` of it."""
        self._cpu_s += cpu_s
        self._wall_s += wall_s
        if self._wall_s < WINDOW_S * self.allowed:
            return
        share = self._cpu_s / self._wall_s
        self._cpu_s = self._wall_s = 0.0
        if share < WAITS_BELOW:
            self.allowed = max(self.allowed - 1, self._least)
        elif share > COPIES_ABOVE:
            self.allowed = min(self.allowed + 1, self._most)
