"""A rounded surface with a column of content."""

from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.ui.theme import Weight
from app.ui.widgets.label import ElidedLabel, Label


class Card(QFrame):
    """The style sheet paints it; add content to `column`."""

    def __init__(self, *, spacing: int = 8, bottom: int = 12, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("Card")
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(18, 12, 18, bottom)
        self.column.setSpacing(spacing)

    def add_title(self, title: str) -> ElidedLabel:
        """A title row; returns the note to its right, empty."""
        row = QHBoxLayout()
        row.setSpacing(16)
        row.addWidget(Label(title, 14, Weight.DemiBold))
        note = ElidedLabel("", 12, role="muted")
        row.addWidget(note, 1)
        self.column.addLayout(row)
        return note


class Line(QFrame):
    """A hairline between rows of a card (horizontal) or between rail and page (vertical)."""

    def __init__(self, *, vertical: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("Line")
        if vertical:
            self.setFixedWidth(1)
        else:
            self.setFixedHeight(1)
