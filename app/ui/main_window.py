"""The one window: rail at the left, the chosen page at the right."""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QHideEvent, QKeySequence, QResizeEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QStackedWidget, QWidget
from typing_extensions import override

from app.ui import icons
from app.ui.theme import Theme
from app.ui.widgets.card import Line
from app.ui.widgets.focus import focusable
from app.ui.widgets.rail import Rail, RailEntry
from app.ui.window_memory import WindowMemory

RAIL_NARROW_BELOW_PX = 1000
_SIZE = QSize(1180, 800)
_SMALLEST = QSize(880, 600)
_FRAME = QSize(16, 40)  # title bar and edges, which belong to the system


class MainWindow(QMainWindow):
    """Shows pages. What closing means is asked of `may_close`: True lets the window go.

    Signals:
        shown_changed: the window has become visible or hidden (bool); minimised counts as hidden.
    """

    shown_changed = Signal(bool)

    def __init__(
        self,
        theme: Theme,
        pages: Sequence[tuple[RailEntry, QWidget]],
        memory: WindowMemory,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._memory = memory
        self._theme = theme
        self.may_close: Callable[[], bool] = lambda: True
        self.setWindowTitle("Splitpin")
        room = self.screen().availableGeometry().size() - _FRAME  # small, where the screen is scaled
        self.setMinimumSize(_SMALLEST.boundedTo(room))
        self.resize(_SIZE.boundedTo(room))
        self.rail = Rail(theme, tuple(entry for entry, _ in pages))
        self._stack = QStackedWidget()
        self._pages = {entry.key: page for entry, page in pages}
        for page in self._pages.values():
            self._stack.addWidget(page)
        body = QWidget()
        body.setObjectName("Page")
        row = QHBoxLayout(body)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.rail)
        row.addWidget(Line(vertical=True))
        row.addWidget(self._stack, 1)
        self.setCentralWidget(body)
        self.rail.chosen.connect(self.show_page)
        for number, key in enumerate(self._pages, 1):
            self.add_shortcut(f"Ctrl+{number}", partial(self.show_page, key))
        theme.changed.connect(self._tint)
        self._tint()
        self.show_page(next(iter(self._pages)))
        if memory.geometry is not None:
            self.restoreGeometry(memory.geometry)

    def add_shortcut(self, keys: str, act: Callable[[], object]) -> QShortcut:
        """A shortcut of the whole window."""
        shortcut = QShortcut(QKeySequence(keys), self)
        shortcut.activated.connect(lambda: act())
        return shortcut

    def show_page(self, key: str) -> None:
        """Bring a page to the front, and the keyboard to where the page wants it."""
        page = self._pages[key]
        self._stack.setCurrentWidget(page)
        self.rail.choose(key)
        page.setFocus(Qt.FocusReason.OtherFocusReason)

    @property
    def page(self) -> str:
        """Key of the page in front."""
        return next(key for key, page in self._pages.items() if page is self._stack.currentWidget())

    def focus_next_area(self) -> None:
        """Move the keyboard between the rail and the page, each time to where it belongs there."""
        page = self._pages[self.page]
        if any(child.hasFocus() for child in self.rail.findChildren(QWidget)):
            reachable = (child for child in focusable(page) if child.isVisibleTo(page) and child.isEnabled())
            target = page.focusProxy() or next(reachable, None)
        else:
            target = self.rail.current
        if target is not None:
            target.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def bring_up(self) -> None:
        """Show the window and give it the keyboard, also from the tray or minimised."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def remember(self) -> None:
        """Keep the window's place for the next run."""
        self._memory.geometry = self.saveGeometry()
        self._memory.save()

    def _tint(self) -> None:
        self.setWindowIcon(icons.icon("pin", self._theme.tokens.accent, 32))

    @override
    def resizeEvent(self, event: QResizeEvent) -> None:
        self.rail.set_narrow(event.size().width() < RAIL_NARROW_BELOW_PX)
        super().resizeEvent(event)

    @override
    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.shown_changed.emit(True)

    @override
    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.shown_changed.emit(False)

    @override
    def closeEvent(self, event: QCloseEvent) -> None:
        self.remember()
        if self.may_close():
            event.accept()
        else:
            event.ignore()
