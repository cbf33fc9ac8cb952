"""What the window knows of left-over processes, and what was decided about them."""

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from app.link.orphan_watch import OrphanWatch
from app.orphans.sweep import EndReport
from app.orphans.verdicts import Orphan, Verdicts
from app.supervision.scan import refuse_start
from app.ui.notices import Notice, of_problem
from engine.contract.errors import OrphanHoldsMemoryError, Problem


class OrphanDesk(QObject):
    """Signals:
    changed: something that is shown has changed.
    memory_changed: processes came or went; the machine's memory is another one.
    may_start: the check before a start is over: nothing of ours holds memory, or the user does not mind.
    refused_start: something of ours holds memory.
    reported: there is a result to show (Notice).
    """

    changed = Signal()
    memory_changed = Signal()
    may_start = Signal()
    refused_start = Signal()
    reported = Signal(object)

    def __init__(self, watch: OrphanWatch, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._watch = watch
        self._orphans: tuple[Orphan, ...] = ()
        self._refused = False
        self._asked: Orphan | None = None
        self._ending: set[int] = set()
        watch.verdicts.connect(self._judged)
        watch.ended.connect(self._ended)
        watch.failed.connect(self._failed)

    @property
    def orphans(self) -> tuple[Orphan, ...]:
        """All of them, provably ours first."""
        return self._orphans

    @property
    def ours(self) -> tuple[Orphan, ...]:
        return tuple(orphan for orphan in self._orphans if orphan.confidence == "ours")

    @property
    def refused(self) -> bool:
        """A start was refused because of them."""
        return self._refused

    @property
    def asked(self) -> Orphan | None:
        """The one whose end needs a second click."""
        return self._asked

    @property
    def ending(self) -> tuple[int, ...]:
        """PIDs that were told to end."""
        return tuple(self._ending)

    def check_before_start(self) -> None:
        """Look once more; `may_start` or `refused_start` follows. A table that cannot be read refuses nothing."""
        self._watch.scan_then(self._checked)

    def end_first(self) -> None:
        """End the one that is shown: ours at once, another one after a second click."""
        if not self._orphans:
            return
        orphan = self._orphans[0]
        if orphan.confidence == "ours":
            self._end(orphan)
        else:
            self._asked = orphan
            self.changed.emit()

    def end_pids(self, pids: Sequence[int]) -> None:
        """End the trees of ours with these PIDs at their top."""
        for orphan in self.ours:
            if orphan.pids[0] in pids:
                self._end(orphan)

    def end_asked(self) -> None:
        """The second click."""
        if self._asked is not None:
            self._end(self._asked)

    def keep_asked(self) -> None:
        """No second click."""
        self._asked = None
        self.changed.emit()

    def forget_refusal(self) -> None:
        """The user has decided; the refusal needs no more showing."""
        self._refused = False

    def _end(self, orphan: Orphan) -> None:
        self._ending.update(orphan.pids)
        self._asked = None
        self._watch.end(orphan)
        self.changed.emit()

    def _checked(self, verdicts: Verdicts) -> None:
        try:
            refuse_start(verdicts)
        except OrphanHoldsMemoryError:
            self._refused = True
            self.changed.emit()
            self.refused_start.emit()
            return
        self.may_start.emit()

    def _judged(self, verdicts: Verdicts) -> None:
        before = [orphan.pids for orphan in self._orphans]
        self._orphans = tuple(sorted(verdicts.orphans, key=lambda orphan: orphan.confidence != "ours"))
        if not self._orphans:
            self._refused, self._asked = False, None
        if before != [orphan.pids for orphan in self._orphans]:
            self.memory_changed.emit()
        self.changed.emit()

    def _ended(self, report: EndReport) -> None:
        self._ending.clear()
        self._refused = False
        self.reported.emit(Notice("ok" if report.success else "warn", report.sentence.removesuffix("."), about="ended"))
        self.memory_changed.emit()

    def _failed(self, problem: Problem) -> None:
        self._ending.clear()
        self.reported.emit(of_problem(problem, severity="warn"))
