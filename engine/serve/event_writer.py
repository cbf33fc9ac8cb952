"""Events out: one line each, whole, from any thread, on the descriptor that was standard output."""

import logging
import os
import threading
from collections.abc import Callable

from engine.contract.events import Event
from engine.contract.wire import encode

log = logging.getLogger(__name__)


class EventWriter:
    """Writes events. When nobody reads them any more, `on_broken` is called once and the rest is dropped."""

    def __init__(self, descriptor: int, on_broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._broken = False
        self._writing = threading.Lock()

    def write(self, event: Event) -> None:
        """Write one event; returns when the pipe has taken all of it."""
        line = memoryview(encode(event))
        with self._writing:
            if self._broken:
                return
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError as error:
                self._broken = True
                log.warning("nobody reads the events any more: %s", error)
        if self._broken:
            self._on_broken()
