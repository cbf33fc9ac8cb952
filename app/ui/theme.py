"""The theme in force and its fonts: one source for every painter.

A `Theme` is built once by the composition root and passed on. Painters read `theme.tokens` while painting: Qt repaints
every widget when the palette changes. Only what keeps tinted pixmaps listens to `theme.changed`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont
from PySide6.QtWidgets import QApplication

from app.ui.style_sheet import palette, qss
from app.ui.tokens import CONTRAST, DARK, LIGHT, Tokens

ThemeChoice = Literal["system", "light", "dark", "contrast"]
Weight = QFont.Weight

UI_FAMILIES = ("Segoe UI Variable Text", "Segoe UI", "Inter", "Noto Sans", "DejaVu Sans")
DISPLAY_FAMILIES = ("Segoe UI Variable Display", "Segoe UI", "Inter Display", "Inter", "Noto Sans", "DejaVu Sans")
MONO_FAMILIES = ("Cascadia Mono", "JetBrains Mono", "Consolas", "DejaVu Sans Mono")


def color(hex_rgb: str, alpha: int = 255) -> QColor:
    """A token as QColor; `alpha` 0..255."""
    made = QColor(hex_rgb)
    made.setAlpha(alpha)
    return made


@lru_cache(maxsize=64)
def _font(families: tuple[str, ...], px: int, weight: Weight) -> QFont:
    font = QFont()
    font.setFamilies(list(families))
    font.setPixelSize(px)
    font.setWeight(weight)
    font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    font.setFeature(QFont.Tag("tnum"), 1)  # figures of one width: numbers do not jump while the slider moves
    return font


def ui_font(px: int = 13, weight: Weight = Weight.Normal) -> QFont:
    """Text of the interface, with tabular figures; `px` is a pixel size."""
    return QFont(_font(UI_FAMILIES, px, weight))


def display_font(px: int, weight: Weight = Weight.DemiBold) -> QFont:
    """Titles and big numbers, from 20 px."""
    return QFont(_font(DISPLAY_FAMILIES, px, weight))


def mono_font(px: int = 13) -> QFont:
    """Code, paths and raw messages."""
    return QFont(_font(MONO_FAMILIES, px, Weight.Normal))


def apply(app: QApplication, tokens: Tokens) -> None:
    """Dress the whole application: style, palette, font, style sheet. Every widget repaints."""
    app.setStyle("Fusion")  # the same pixels on Windows and on the test bench
    app.setPalette(palette(tokens))
    app.setFont(ui_font(13))
    app.setStyleSheet(qss(tokens))


class Theme(QObject):
    """The tokens in force. Follows the system's light or dark and its contrast preference while the choice is
    `system`.

    Signals:
        changed: other tokens are in force.
    """

    changed = Signal()

    def __init__(
        self,
        app: QApplication,
        choice: ThemeChoice = "system",
        *,
        system_scheme: Callable[[], Qt.ColorScheme] | None = None,
    ) -> None:
        """`system_scheme` replaces the system's answer in tests: the platform without a screen knows none."""
        super().__init__(app)
        self._app = app
        self._choice: ThemeChoice = choice
        # PySide6: what accessibility() returns dies with the wrapper styleHints() returned, so both are kept.
        self._hints = app.styleHints()
        self._accessibility = self._hints.accessibility() if hasattr(self._hints, "accessibility") else None
        self._system_scheme = system_scheme or self._hints.colorScheme
        self._tokens = LIGHT
        self._hints.colorSchemeChanged.connect(self._system_changed)
        if self._accessibility is not None:
            self._accessibility.contrastPreferenceChanged.connect(self._system_changed)
        self.choose(choice)

    @property
    def tokens(self) -> Tokens:
        return self._tokens

    @property
    def choice(self) -> ThemeChoice:
        return self._choice

    @property
    def animated(self) -> bool:
        """Whether painters may move: off where the user asked the system for less motion (Qt 6.12 tells)."""
        asked = getattr(self._accessibility, "motionPreference", None)
        return asked is None or asked().name != "ReducedMotion"

    def choose(self, choice: ThemeChoice) -> None:
        """Take another choice and dress the application."""
        self._choice = choice
        if choice == "system":
            self._hints.unsetColorScheme()
        else:  # also colours the native title bar
            self._hints.setColorScheme(Qt.ColorScheme.Light if choice == "light" else Qt.ColorScheme.Dark)
        self._put_on(self._wanted())

    def _wanted(self) -> Tokens:
        if self._choice != "system":
            return {"light": LIGHT, "dark": DARK, "contrast": CONTRAST}[self._choice]
        if (
            self._accessibility is not None
            and self._accessibility.contrastPreference() is Qt.ContrastPreference.HighContrast
        ):
            return CONTRAST
        return DARK if self._system_scheme() is Qt.ColorScheme.Dark else LIGHT

    def _put_on(self, tokens: Tokens) -> None:
        self._tokens = tokens
        apply(self._app, tokens)
        self.changed.emit()

    def _system_changed(self) -> None:
        if self._choice == "system" and (wanted := self._wanted()) is not self._tokens:
            self._put_on(wanted)
