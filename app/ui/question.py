"""A question in a window of its own, in the look of the others: what it is about, what follows, the answers."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from app.ui.theme import Theme, Weight
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.label import Label

_TITLE_PX = 460


class Question(QDialog):
    """Escape and the cross of the window answer nothing."""

    def __init__(
        self,
        theme: Theme,
        title: str,
        text: str,
        answers: Sequence[tuple[str, str, str]],
        *,
        default: str,
        more: QWidget | None = None,
        parent: QWidget | None = None,
    ) -> None:
        """Args:
        answers: id, label and kind of each button, from left to right.
        default: id of the answer that Enter gives.
        more: shown between text and answers.
        """
        super().__init__(parent)
        self.setWindowTitle("Splitpin")
        self.answer: str | None = None
        heading = Label(title, 20, Weight.DemiBold, display=True, wrap=True)
        heading.setMinimumWidth(min(_TITLE_PX, heading.fontMetrics().horizontalAdvance(title) + 2))
        column = QVBoxLayout(self)
        column.setContentsMargins(26, 18, 26, 18)
        column.setSpacing(6)
        column.addWidget(heading)
        column.addWidget(Label(text, role="muted"))
        column.addSpacing(10)
        if more is not None:
            column.addWidget(more, 0, Qt.AlignmentFlag.AlignLeft)
            column.addSpacing(10)
        row = QHBoxLayout()
        row.addStretch()
        for answer, label, kind in answers:
            button = ActionButton(theme, label, kind=kind)
            button.clicked.connect(lambda _=False, answer=answer: self._choose(answer))
            row.addWidget(button)
            if answer == default:
                button.setDefault(True)
                button.setFocus()
        column.addLayout(row)

    def _choose(self, answer: str) -> None:
        self.answer = answer
        self.accept()

    def ask(self) -> str | None:
        """Wait for the answer; None: the user called it off. Call it once."""
        self.exec()
        self.deleteLater()
        return self.answer
