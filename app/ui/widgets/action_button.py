"""A push button whose text, icon and kind change with the state, tinted by the theme."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QPushButton, QWidget

from app.ui import icons
from app.ui.theme import Theme
from app.ui.widgets.label import no_mnemonic, plain_tip, restyle


class ActionButton(QPushButton):
    """`kind` is one the style sheet knows: primary, danger, ghost, link, or empty."""

    def __init__(
        self, theme: Theme, text: str = "", *, icon: str = "", kind: str = "", parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._icon_name = ""
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setIconSize(QSize(16, 16))
        self.show_as(text, icon=icon, kind=kind)
        theme.changed.connect(self._tint)

    def show_as(self, text: str, *, icon: str = "", kind: str = "", hint: str = "") -> None:
        """Become another button."""
        self.setText(no_mnemonic(text))
        self.setAccessibleName(text)
        self.setToolTip(plain_tip(hint))
        self.setAccessibleDescription(hint)
        restyle(self, "kind", kind)
        self._icon_name = icon
        self._tint()

    def _tint(self) -> None:
        if not self._icon_name:
            self.setIcon(QIcon())
            return
        t = self._theme.tokens
        tint = {"primary": t.on_accent, "danger": t.error, "ghost": t.text2, "link": t.accent, "inplace": t.accent}
        self.setIcon(icons.icon(self._icon_name, tint.get(str(self.property("kind")), t.text), 16, t.text3))
