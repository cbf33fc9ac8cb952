"""What a test must not leave running in Qt: threads, timers, top-level windows.

Starts are recorded by wrapping the start methods, as napari does; a timer that Qt starts on its own is not seen.
"""

import gc
import traceback
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent, QThread, QTimer
from PySide6.QtWidgets import QApplication, QWidget
from typing_extensions import override

from tests.support.leaks import LeakCheck

_THREAD_GRACE_MS = 3000
_QT_OWN_WINDOWS = {"QTipLabel", "QComboBoxPrivateContainer", "QDesktopWidget", "QRubberBand"}


class QtLeakCheck(LeakCheck):
    """Running QThreads, active QTimers and surviving top-level widgets."""

    def __init__(self) -> None:
        self._started: WeakKeyDictionary[QThread | QTimer, str] = WeakKeyDictionary()
        self._windows_before: set[int] = set()
        self._originals: list[tuple[type, Callable[..., Any]]] = []

    @override
    def begin(self) -> None:
        self._windows_before = {id(window) for window in _windows()}
        for kind in (QThread, QTimer):
            self._record_starts(kind)

    @override
    def end(self) -> list[str]:
        for kind, start in self._originals:
            kind.start = start  # type: ignore[attr-defined]
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        gc.collect()  # widgets in reference cycles die here
        return [*self._running(), *self._open_windows()]

    def _record_starts(self, kind: type[QThread] | type[QTimer]) -> None:
        original: Callable[..., Any] = kind.start
        started = self._started

        def start(self: QThread | QTimer, *arguments: Any) -> None:
            caller = traceback.extract_stack(limit=2)[0]
            started[self] = f"{caller.filename}:{caller.lineno}"
            original(self, *arguments)

        kind.start = start  # type: ignore[method-assign]
        self._originals.append((kind, original))

    def _running(self) -> list[str]:
        left_over = []
        for thing, place in list(self._started.items()):
            if not shiboken6.isValid(thing):
                continue
            if isinstance(thing, QThread) and thing.isRunning() and not thing.wait(_THREAD_GRACE_MS):
                left_over.append(f"QThread started at {place}: quit and wait")
            if isinstance(thing, QTimer) and thing.isActive():
                left_over.append(f"QTimer started at {place}: stop it, or give it a parent that goes away")
        return left_over

    def _open_windows(self) -> list[str]:
        return [
            f"window {type(window).__name__} {window.objectName()!r}: give it to qtbot.addWidget or close it"
            for window in _windows()
            if id(window) not in self._windows_before
        ]


def _windows() -> list[QWidget]:
    return [
        window
        for window in QApplication.topLevelWidgets()
        if shiboken6.isValid(window)
        and window.parent() is None
        and window.metaObject().className() not in _QT_OWN_WINDOWS
    ]
