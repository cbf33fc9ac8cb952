"""Work off the UI thread: a plain function runs on a pool thread, its result or error arrives on the UI thread."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from PySide6.QtCore import QObject, QRunnable, Qt, QThreadPool, Signal
from typing_extensions import override

from engine.contract.errors import SplitpinError

log = logging.getLogger(__name__)

T = TypeVar("T")


class UnexpectedError(SplitpinError):
    """A fault of Splitpin in background work; the log has the traceback."""

    kind = "unexpected"


class Background(QObject):
    """Runs functions on a few pool threads. `close` before the end: results that come later are dropped."""

    _finished = Signal(int, object, object)  # job number, result, SplitpinError or None

    def __init__(self, parent: QObject | None = None, *, threads: int = 2) -> None:
        super().__init__(parent)
        self._pool = QThreadPool(self)
        self._pool.setMaxThreadCount(threads)
        self._waiting: dict[int, tuple[Callable[[Any], None], Callable[[SplitpinError], None]]] = {}
        self._last = 0
        self._closed = False
        self._finished.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    @property
    def busy(self) -> bool:
        """Something runs or waits, or its outcome has not been delivered."""
        return bool(self._waiting)

    def run(
        self, work: Callable[[], T], success: Callable[[T], None], failure: Callable[[SplitpinError], None]
    ) -> None:
        """Run `work` on a pool thread, then `success` or `failure` on the thread of this object.

        `work` must touch no Qt object. An error that is no `SplitpinError` is logged and arrives as `UnexpectedError`.
        """
        if self._closed:
            return
        self._last += 1
        self._waiting[self._last] = (cast(Callable[[Any], None], success), failure)
        self._pool.start(_Job(self._last, work, self._finished.emit))

    def close(self, timeout_ms: int = 30_000) -> bool:
        """Drop what waits and let what runs finish; False if something still runs after the timeout."""
        self._closed = True
        self._waiting.clear()
        self._pool.clear()
        return self._pool.waitForDone(timeout_ms)

    def _deliver(self, number: int, result: object, error: SplitpinError | None) -> None:
        callbacks = self._waiting.pop(number, None)
        if callbacks is None:
            return
        success, failure = callbacks
        if error is None:
            success(result)
        else:
            failure(error)


class _Job(QRunnable):
    def __init__(self, number: int, work: Callable[[], Any], finished: Callable[[int, object, object], None]) -> None:
        super().__init__()
        self._number = number
        self._work = work
        self._finished = finished

    @override
    def run(self) -> None:
        result: object = None
        error: SplitpinError | None = None
        try:
            result = self._work()
        except SplitpinError as known:
            error = known
        except Exception as unknown:
            log.exception("background work failed")
            error = UnexpectedError(f"Something unexpected happened: {unknown}.", "Open the log for details.")
        self._finished(self._number, result, error)
