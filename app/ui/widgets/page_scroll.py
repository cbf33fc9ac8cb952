"""The scrolling page: its cards keep their width while the scroll bar comes and goes."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QScrollArea, QVBoxLayout, QWidget
from typing_extensions import override

_SIDE_PX, _TOP_PX, _BOTTOM_PX = 26, 14, 12


class PageScroll(QScrollArea):
    """Add cards to `column`. The scroll bar stands in the margin at the right."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        content = QWidget()
        content.setObjectName("Page")
        self.column = QVBoxLayout(content)
        self.column.setSpacing(10)
        self.setWidget(content)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(name)
        self._make_room(0)
        self.verticalScrollBar().installEventFilter(self)

    @override
    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.verticalScrollBar() and event.type() in (QEvent.Type.Show, QEvent.Type.Hide):
            shown = event.type() is QEvent.Type.Show
            self._make_room(self.verticalScrollBar().sizeHint().width() if shown else 0)
        return super().eventFilter(watched, event)

    def _make_room(self, bar_px: int) -> None:
        self.column.setContentsMargins(_SIDE_PX, _TOP_PX, _SIDE_PX - bar_px, _BOTTOM_PX)
