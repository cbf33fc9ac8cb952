"""What closing the window means while an engine runs, asked once."""

from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from app.ui.theme import Theme, Weight
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.label import Label
from app.ui.widgets.switch import Switch
from app.ui.window_memory import CloseAnswer
from engine.contract.plan import Pool
from engine.contract.residency import ResidencyReport
from engine.contract.units import gib


@dataclass(frozen=True, slots=True)
class Closing:
    """The answer; None: the window stays."""

    answer: CloseAnswer | None
    remember: bool = False


def held_words(residency: ResidencyReport | None) -> str:
    """ "keeps 95.5 GiB pinned", or what else the engine keeps."""
    if residency is None:
        return "The engine goes on loading."
    lines = residency.ledger_settled
    pinned = sum(line.bytes for line in lines if line.pool is Pool.PINNED)
    if pinned:
        return f"The engine stays loaded and keeps {gib(pinned)} pinned."
    return f"The engine stays loaded and keeps {gib(sum(x.bytes for x in lines if x.pool is Pool.RAM))} of RAM."


class CloseQuestion(QDialog):
    """Keep in the tray, or stop the engine and exit. Escape: neither."""

    def __init__(self, theme: Theme, residency: ResidencyReport | None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Splitpin")
        self.answer: CloseAnswer | None = None
        self.remember = Switch(theme, "Don't ask again")
        keep = ActionButton(theme, "Keep in tray", kind="primary")
        leave = ActionButton(theme, "Stop engine and exit")
        keep.clicked.connect(lambda: self._choose("keep"))
        leave.clicked.connect(lambda: self._choose("exit"))
        keep.setDefault(True)
        column = QVBoxLayout(self)
        column.setContentsMargins(26, 18, 26, 18)
        column.setSpacing(6)
        column.addWidget(Label("Keep Splitpin in the tray?", 20, Weight.DemiBold, display=True))
        column.addWidget(Label(held_words(residency), role="muted"))
        column.addSpacing(10)
        column.addWidget(self.remember, 0, Qt.AlignmentFlag.AlignLeft)
        column.addSpacing(10)
        row = QHBoxLayout()
        row.addStretch()
        row.addWidget(leave)
        row.addWidget(keep)
        column.addLayout(row)

    def _choose(self, answer: CloseAnswer) -> None:
        self.answer = answer
        self.accept()

    @property
    def closing(self) -> Closing:
        """What was chosen."""
        return Closing(self.answer, self.answer is not None and self.remember.isChecked())


def ask_closing(theme: Theme, parent: QWidget, residency: ResidencyReport | None) -> Closing:
    """Ask and wait for the answer."""
    question = CloseQuestion(theme, residency, parent)
    question.exec()
    question.deleteLater()
    return question.closing
