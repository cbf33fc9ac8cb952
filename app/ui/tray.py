"""The tray icon. Where there is no tray it stays away, and the window is never hidden into it."""

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QSystemTrayIcon

from app.ui import icons, tray_glyph
from app.ui.theme import Theme
from app.ui.tray_view import Glyph, TrayView
from app.ui.widgets.label import no_mnemonic
from app.ui.widgets.menu import round_menu
from engine.system.taskbar import dark_taskbar

RETRY_MS = 3_000
RETRIES = 20  # a tray that is not there a minute after logon does not come


class Tray(QObject):
    """Shows a `TrayView`.

    Signals:
        acted: a line of the menu was chosen (its id).
        toggled: the icon was clicked: show or hide the window.
    """

    acted = Signal(str)
    toggled = Signal()

    def __init__(
        self,
        theme: Theme,
        *,
        is_available: Callable[[], bool] = QSystemTrayIcon.isSystemTrayAvailable,
        has_dark_taskbar: Callable[[], bool | None] = dark_taskbar,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._is_available = is_available
        self._has_dark_taskbar = has_dark_taskbar
        self._on_dark = True
        self._view: TrayView | None = None
        self.menu = round_menu()
        self._icon = QSystemTrayIcon(self)
        self._icon.setContextMenu(self.menu)
        self._icon.setIcon(self._glyph(Glyph()))
        self._icon.activated.connect(self._activated)
        self._retries = 0
        self._retry = QTimer(self)
        self._retry.setInterval(RETRY_MS)
        self._retry.timeout.connect(self._try_again)
        theme.changed.connect(self._repaint)

    @property
    def available(self) -> bool:
        """Whether the icon is there, so that the window may be hidden."""
        return self._icon.isVisible() and self._is_available()

    @property
    def shown_icon(self) -> QIcon:
        """The picture in the tray."""
        return self._icon.icon()

    def begin(self) -> None:
        """Put the icon into the tray, or wait for one to appear."""
        if self._is_available():
            self._icon.show()
        else:
            self._retry.start()

    def close(self) -> None:
        self._retry.stop()
        self._icon.hide()
        self.menu.deleteLater()

    def show_view(self, view: TrayView) -> None:
        old, self._view = self._view, view
        if old is None or old.glyph != view.glyph:
            self._icon.setIcon(self._glyph(view.glyph))
        self._icon.setToolTip(view.tip)
        if old is None or old.items != view.items:
            self._fill_menu(view)

    def tell(self, title: str, text: str) -> None:
        """A balloon: only for an engine that stopped by an error and for a left-over process."""
        if self.available:
            self._icon.showMessage(title, text, QSystemTrayIcon.MessageIcon.Warning)

    def follow_taskbar(self) -> None:
        """Draw the icon anew if the taskbar has become dark or light: no signal tells that."""
        if self._is_dark() is not self._on_dark:
            self._repaint()

    def _is_dark(self) -> bool:
        told = self._has_dark_taskbar()
        return not self._theme.tokens.is_light if told is None else told

    def _glyph(self, glyph: Glyph) -> QIcon:
        self._on_dark = self._is_dark()
        return tray_glyph.icon(glyph, dark_taskbar=self._on_dark)

    def _fill_menu(self, view: TrayView) -> None:
        self.menu.clear()
        tint = self._theme.tokens.text2
        for item in view.items:
            if not item.text:
                self.menu.addSeparator()
                continue
            action = self.menu.addAction(no_mnemonic(item.text))
            action.setEnabled(item.id is not None and item.enabled)
            if item.icon:
                action.setIcon(icons.icon(item.icon, tint, 16, self._theme.tokens.text3))
            if item.id is not None:
                action.triggered.connect(lambda _=False, wanted=item.id: self.acted.emit(wanted))
            if item.strong:
                self.menu.setDefaultAction(action)

    def _repaint(self) -> None:
        if self._view is not None:
            self._icon.setIcon(self._glyph(self._view.glyph))
            self._fill_menu(self._view)

    def _activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason is QSystemTrayIcon.ActivationReason.Trigger:
            self.toggled.emit()

    def _try_again(self) -> None:
        self._retries += 1
        if self._is_available():
            self._icon.show()
        if self._icon.isVisible() or self._retries >= RETRIES:
            self._retry.stop()
