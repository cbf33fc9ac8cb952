"""Icon, one line, two lines of fact, at most three buttons: what a page shows when it has nothing to show."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget
from typing_extensions import override

from app.ui import icons
from app.ui.theme import Theme, Weight
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.label import Label

_ICON_PX = 44
_TEXT_PX = 740
_MARGIN_PX = 12


class _Facts(Label):
    """Centred lines, as wide as there is room and as high as they need."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 13, role="muted", wrap=True)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setMaximumWidth(min(_TEXT_PX, self.fontMetrics().horizontalAdvance(text) + 4))
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    @override
    def resizeEvent(self, event: QResizeEvent) -> None:
        self.setFixedHeight(self.heightForWidth(event.size().width()))
        super().resizeEvent(event)


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
        column = QVBoxLayout(self)
        column.addStretch(2)
        for widget, gap in ((self._picture, 10), (heading, 4)):
            widget.setAlignment(Qt.AlignmentFlag.AlignCenter)
            column.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
            column.addSpacing(gap)
        middle = QHBoxLayout()
        middle.addSpacing(_MARGIN_PX)
        middle.addStretch(1)
        middle.addWidget(_Facts(text), 1000)
        middle.addStretch(1)
        middle.addSpacing(_MARGIN_PX)
        column.addLayout(middle)
        column.addSpacing(16)
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
