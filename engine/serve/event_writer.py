"""Events out: one line each, whole, from any thread, on the descriptor that was standard output.

A thread of its own writes them, so that a reader that stands still holds up neither an answer nor the engine's end.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable

from engine.contract.events import Event, Heartbeat, Loading, PrefillProgress
from engine.contract.wire import encode

log = logging.getLogger(__name__)

_PASSING = (Loading, PrefillProgress, Heartbeat)  # the next one says the same anew
FEW_WAITING = 100  # events; more of them only without those
MOST_WAITING = 10_000


class EventWriter:
    """Writes events. When nobody can read them any more, `on_broken` is called once and the rest is dropped.

    Where somebody could read them and does not, what is only progress is left out first.
    """

    def __init__(self, descriptor: int, on_broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._waiting: deque[bytes] = deque()
        self._writing = False
        self._broken = False
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, event: Event) -> None:
        """Take one event; returns at once."""
        line = encode(event)
        with self._changed:
            room = FEW_WAITING if isinstance(event, _PASSING) else MOST_WAITING
            if self._broken or len(self._waiting) >= room:
                self._dropped += 1
                return
            self._waiting.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="events", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is written, or nobody can read it; False: not within this time."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._broken or not (self._waiting or self._writing), timeout_s)
        if self._dropped and not self._broken:
            log.warning("%d events were dropped: nobody read them in time", self._dropped)
        return done

    def _write_all(self) -> None:
        while not self._broken:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                line = memoryview(self._waiting.popleft())
                self._writing = True
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError as error:
                log.warning("nobody reads the events any more: %s", error)
                with self._changed:
                    self._broken = True
                    self._waiting.clear()
                    self._changed.notify_all()
                self._on_broken()
