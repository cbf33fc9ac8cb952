"""Results that the page tells until they are read: dismissed, out of date after the next change, or simply old."""

from PySide6.QtCore import QObject, QTimer, Signal

from app.ui.notices import Notice

SHOWN_MS = 45_000  # good news needs no click to go away
OUTDATED = frozenset({"back", "ended", "measured", "change"})  # what notices of a moment are about


class Reports(QObject):
    """Signals:
    changed: a notice came or went.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._notices: list[Notice] = []
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SHOWN_MS)
        self._timer.timeout.connect(self.drop_old)

    @property
    def notices(self) -> tuple[Notice, ...]:
        return tuple(self._notices)

    def add(self, notice: Notice) -> None:
        """One more; a newer one about the same replaces it."""
        if notice.about:
            self._notices = [kept for kept in self._notices if kept.about != notice.about]
        self._notices.append(notice)
        if notice.severity == "ok":
            self._timer.start()
        self.changed.emit()

    def dismiss(self, notice: Notice) -> None:
        """The user has read it."""
        self._keep([kept for kept in self._notices if kept != notice])

    def forget(self, about: str) -> None:
        """It does not hold any more."""
        self._keep([kept for kept in self._notices if kept.about != about])

    def drop_old(self) -> None:
        """Good news was shown for long enough."""
        self._keep([kept for kept in self._notices if kept.severity != "ok"])

    def drop_outdated(self) -> None:
        """The engine starts or stops, or another model is chosen: what was said of a moment is over."""
        self._keep([kept for kept in self._notices if kept.severity != "ok" and kept.about not in OUTDATED])

    def close(self) -> None:
        """No more timers."""
        self._timer.stop()

    def _keep(self, notices: list[Notice]) -> None:
        if notices != self._notices:
            self._notices = notices
            if not any(kept.severity == "ok" for kept in notices):
                self._timer.stop()
            self.changed.emit()
