"""Icon, one line, two lines of fact, at most three buttons: what a page shows when it has nothing to show."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.ui import icons
from app.ui.theme import Theme, Weight
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.label import Label

_ICON_PX = 44
_TEXT_PX = 740


class EmptyState(QWidget):
    """Signals:
    acted: a button was pressed (its id).
    """

    acted = Signal(str)

    def __init__(
        self,
        theme: Theme,
        icon: str,
        title: str,
        text: str,
        actions: tuple[tuple[str, str, str], ...] = (),
        parent: QWidget | None = None,
    ) -> None:
        """`actions` are (label, id, kind)."""
        super().__init__(parent)
        self._theme = theme
        self._icon_name = icon
        self.setObjectName("Page")
        self._picture = QLabel()
        heading = Label(title, 20, Weight.DemiBold, display=True)
        facts = Label(text, 13, role="muted", wrap=True)
        width = min(_TEXT_PX, facts.fontMetrics().horizontalAdvance(text) + 4)
        facts.setFixedSize(width, facts.heightForWidth(width))  # a centred label does not grow by itself
        column = QVBoxLayout(self)
        column.addStretch(2)
        for widget, gap in ((self._picture, 10), (heading, 4), (facts, 16)):
            widget.setAlignment(Qt.AlignmentFlag.AlignCenter)
            column.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
            column.addSpacing(gap)
        row = QHBoxLayout()
        row.addStretch()
        for label, action, kind in actions:
            button = ActionButton(theme, label, kind=kind)
            button.clicked.connect(lambda _=False, action=action: self.acted.emit(action))
            row.addWidget(button)
        row.addStretch()
        column.addLayout(row)
        column.addStretch(3)
        theme.changed.connect(self._tint)
        self._tint()

    def _tint(self) -> None:
        tint = self._theme.tokens.text2
        self._picture.setPixmap(icons.pixmap(self._icon_name, tint, _ICON_PX, self.devicePixelRatioF(), 1.1))
