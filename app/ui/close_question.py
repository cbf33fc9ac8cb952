"""What closing the window means while an engine runs, asked once."""

from dataclasses import dataclass

from PySide6.QtWidgets import QWidget

from app.ui.question import Question
from app.ui.theme import Theme
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


class CloseQuestion(Question):
    """Keep in the tray, or stop the engine and exit. Escape: neither."""

    def __init__(self, theme: Theme, residency: ResidencyReport | None, parent: QWidget | None = None) -> None:
        self.remember = Switch(theme, "Don't ask again")
        super().__init__(
            theme,
            "Keep Splitpin in the tray?",
            held_words(residency),
            (("exit", "Stop engine and exit", ""), ("keep", "Keep in tray", "primary")),
            default="keep",
            more=self.remember,
            parent=parent,
        )

    @property
    def closing(self) -> Closing:
        """What was chosen."""
        answer: CloseAnswer | None = "keep" if self.answer == "keep" else "exit" if self.answer == "exit" else None
        return Closing(answer, answer is not None and self.remember.isChecked())


def ask_closing(theme: Theme, parent: QWidget, residency: ResidencyReport | None) -> Closing:
    """Ask and wait for the answer."""
    question = CloseQuestion(theme, residency, parent)
    question.ask()
    return question.closing
