"""What closing the window means while an engine runs, asked once."""

from dataclasses import dataclass

from PySide6.QtWidgets import QCheckBox, QMessageBox, QWidget

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


def ask_closing(parent: QWidget, residency: ResidencyReport | None) -> Closing:
    """Ask whether to stay in the tray. Blocks in a dialog."""
    box = QMessageBox(parent)
    box.setWindowTitle("Splitpin")
    box.setText("Keep Splitpin in the tray?")
    box.setInformativeText(held_words(residency))
    again = QCheckBox("Don't ask again")
    box.setCheckBox(again)
    keep = box.addButton("Keep in tray", QMessageBox.ButtonRole.AcceptRole)
    leave = box.addButton("Stop engine and exit", QMessageBox.ButtonRole.DestructiveRole)
    cancel = box.addButton(QMessageBox.StandardButton.Cancel)
    box.setDefaultButton(keep)
    box.setEscapeButton(cancel)
    box.exec()
    clicked = box.clickedButton()
    answer: CloseAnswer | None = "keep" if clicked is keep else "exit" if clicked is leave else None
    box.deleteLater()
    return Closing(answer, answer is not None and again.isChecked())
