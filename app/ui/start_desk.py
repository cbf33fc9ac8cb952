"""What lies between the click on Start and the engine: a look for left-over engines, at the machine, at the folder."""

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.link.background import Background
from app.ui.model_desk import ModelDesk
from app.ui.orphan_desk import OrphanDesk
from engine.contract.errors import SplitpinError
from engine.contract.facts import HardwareFacts


class StartDesk(QObject):
    """Signals:
    changed: a start is on its way, or no more.
    cleared: nothing stands in the way; plan with these HardwareFacts.
    refused: an engine of ours still holds memory; the user must decide.
    failed: the machine cannot be read (SplitpinError).
    """

    changed = Signal()
    cleared = Signal(object)
    refused = Signal()
    failed = Signal(object)

    def __init__(
        self,
        left_over: OrphanDesk,
        background: Background,
        read_facts: Callable[[], HardwareFacts],
        models: ModelDesk,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._left_over = left_over
        self._background = background
        self._read_facts = read_facts
        self._models = models
        self._busy = False
        left_over.may_start.connect(self.go_on)
        left_over.refused_start.connect(self._refuse)

    @property
    def busy(self) -> bool:
        """A start is on its way."""
        return self._busy

    def begin(self) -> None:
        """Look for left-over engines first. Does nothing while a start is on its way."""
        if not self._busy:
            self._set_busy(True)
            self._left_over.check_before_start()

    def go_on(self) -> None:
        """Read the machine and the model's folder, and go: nothing is left over, or the user does not mind."""
        self._set_busy(True)
        self._left_over.forget_refusal()
        self._background.run(self._read_facts, self._clear, self._fail)

    def _set_busy(self, busy: bool) -> None:
        self._busy = busy
        self.changed.emit()

    def _refuse(self) -> None:
        self._set_busy(False)
        self.refused.emit()

    def _clear(self, facts: HardwareFacts) -> None:
        def go() -> None:
            self._busy = False  # told by what follows: the engine starts, or the plan is refused
            self.cleared.emit(facts)

        self._models.look(go)

    def _fail(self, error: SplitpinError) -> None:
        self._set_busy(False)
        self.failed.emit(error)
