"""Colours, fonts, palette and style sheet: one source for every painter.

A `Theme` is built once by the composition root and passed on. Painters read `theme.tokens` while painting: Qt repaints
every widget when the palette changes. Only what keeps tinted pixmaps listens to `theme.changed`.

Tier colours are used for tiers only; the smallest colour difference between two of them is 30 (ΔE76), colour
blindness simulated, and each has a texture of its own (app/ui/widgets/tier_paint.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QPalette
from PySide6.QtWidgets import QApplication

from engine.contract.plan import Tier

ThemeChoice = Literal["system", "light", "dark", "contrast"]
Weight = QFont.Weight

UI_FAMILIES = ("Segoe UI Variable Text", "Segoe UI", "Inter", "Noto Sans", "DejaVu Sans")
DISPLAY_FAMILIES = ("Segoe UI Variable Display", "Segoe UI", "Inter Display", "Inter", "Noto Sans", "DejaVu Sans")
MONO_FAMILIES = ("Cascadia Mono", "JetBrains Mono", "Consolas", "DejaVu Sans Mono")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Every colour by its use, as #RRGGBB."""

    name: Literal["dark", "light", "contrast"]
    bg: str  # window
    surface: str  # card
    inset: str  # bars, code, inputs
    raised: str  # hover, secondary button
    border: str
    border_strong: str
    text: str
    text2: str  # secondary, >= 4.5:1 on surface
    text3: str  # captions, disabled
    accent: str
    accent_hover: str
    on_accent: str
    accent_soft: str
    ok: str
    warn: str
    warn_soft: str
    error: str
    error_soft: str
    info_soft: str
    vram: str
    pinned: str
    locked: str
    pageable: str
    kv: str
    weights: str
    runtime: str
    other: str
    free: str
    code_bg: str
    mark: str  # texture on tier colours: hatch and pin heads
    handle: str  # slider ring

    @property
    def is_light(self) -> bool:
        return self.name == "light"

    def tier(self, tier: Tier) -> str:
        """The colour of a tier."""
        return {
            Tier.VRAM: self.vram,
            Tier.PINNED: self.pinned,
            Tier.LOCKED: self.locked,
            Tier.PAGEABLE: self.pageable,
        }[tier]


DARK = Tokens(
    name="dark",
    bg="#16181D",
    surface="#1E2128",
    inset="#15171C",
    raised="#2A2E37",
    border="#2E333D",
    border_strong="#6C7789",
    text="#ECEEF2",
    text2="#A9B1BF",
    text3="#8791A1",
    accent="#5AA9F2",
    accent_hover="#7ABBF6",
    on_accent="#0B1622",
    accent_soft="#1B2F45",
    ok="#4CC38A",
    warn="#F0B84B",
    warn_soft="#33290F",
    error="#FF7A70",
    error_soft="#3A1D1D",
    info_soft="#1A2A3D",
    vram="#3B7FF5",
    pinned="#49DDA9",
    locked="#E9AC22",
    pageable="#D24C40",
    kv="#9A74B0",
    weights="#76839A",
    runtime="#4D5768",
    other="#5E5A53",
    free="#272B33",
    code_bg="#14161B",
    mark="#000000",
    handle="#454C59",
)

LIGHT = Tokens(
    name="light",
    bg="#F4F5F7",
    surface="#FFFFFF",
    inset="#F0F2F5",
    raised="#E9ECF1",
    border="#DFE3E9",
    border_strong="#868E9C",
    text="#1A1D23",
    text2="#545C6A",
    text3="#69717F",
    accent="#0F66BD",
    accent_hover="#0B579F",
    on_accent="#FFFFFF",
    accent_soft="#E3EFFB",
    ok="#14794B",
    warn="#8F5B00",
    warn_soft="#FFF4DC",
    error="#B8261B",
    error_soft="#FDE9E7",
    info_soft="#E8F1FB",
    vram="#1547A1",
    pinned="#2D9D7E",
    locked="#B68005",
    pageable="#842B18",
    kv="#A07CB9",
    weights="#7D8899",
    runtime="#AAB3C0",
    other="#B8B2A7",
    free="#E6E9EE",
    code_bg="#F4F5F8",
    mark="#FFFFFF",
    handle="#FFFFFF",
)

CONTRAST = Tokens(
    name="contrast",
    bg="#000000",
    surface="#000000",
    inset="#000000",
    raised="#1A1A1A",
    border="#FFFFFF",
    border_strong="#FFFFFF",
    text="#FFFFFF",
    text2="#FFFFFF",
    text3="#C8C8C8",
    accent="#1AEBFF",
    accent_hover="#9AF6FF",
    on_accent="#000000",
    accent_soft="#000000",
    ok="#3FF23F",
    warn="#FFEB3B",
    warn_soft="#000000",
    error="#FF8C8C",
    error_soft="#000000",
    info_soft="#000000",
    vram="#FFFFFF",
    pinned="#1AEBFF",
    locked="#FFEB3B",
    pageable="#FF8C8C",
    kv="#C58CFF",
    weights="#9A9A9A",
    runtime="#6E6E6E",
    other="#505050",
    free="#1C1C1C",
    code_bg="#000000",
    mark="#000000",
    handle="#000000",
)


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


def palette(tokens: Tokens) -> QPalette:
    """Fusion's colours."""
    made = QPalette()
    role = QPalette.ColorRole
    for which, value in (
        (role.Window, tokens.bg),
        (role.WindowText, tokens.text),
        (role.Base, tokens.surface),
        (role.AlternateBase, tokens.inset),
        (role.Text, tokens.text),
        (role.Button, tokens.raised),
        (role.ButtonText, tokens.text),
        (role.BrightText, tokens.error),
        (role.ToolTipBase, tokens.raised),
        (role.ToolTipText, tokens.text),
        (role.PlaceholderText, tokens.text3),
        (role.Highlight, tokens.accent),
        (role.HighlightedText, tokens.on_accent),
        (role.Link, tokens.accent),
        (role.LinkVisited, tokens.accent),
        (role.Accent, tokens.accent),
        (role.Light, tokens.raised),
        (role.Midlight, tokens.border),
        (role.Mid, tokens.border),
        (role.Dark, tokens.border_strong),
        (role.Shadow, "#000000"),
    ):
        made.setColor(which, QColor(value))
    for which in (role.WindowText, role.Text, role.ButtonText):
        made.setColor(QPalette.ColorGroup.Disabled, which, QColor(tokens.text3))
    return made


def qss(tokens: Tokens) -> str:
    """The style sheet. Properties it knows: `role` on labels (muted, faint, warn, error, ok, tag) and `kind` on push
    buttons (primary, danger, ghost, link, number, chooser); object names `Page`, `Rail`, `Card`, `Line`, `Composer`."""
    t = tokens
    button_border = t.border if t.name == "dark" else t.border_strong
    return f"""
QWidget#Page, QWidget#Rail, QMainWindow, QDialog {{ background: {t.bg}; }}
QFrame#Card {{ background: {t.surface}; border: 1px solid {t.border}; border-radius: 8px; }}
QFrame#Line {{ background: {t.border}; border: 0; }}
QLabel {{ color: {t.text}; background: transparent; }}
QLabel[role="muted"] {{ color: {t.text2}; }}
QLabel[role="faint"] {{ color: {t.text3}; }}
QLabel[role="warn"] {{ color: {t.warn}; }}
QLabel[role="error"] {{ color: {t.error}; }}
QLabel[role="ok"] {{ color: {t.ok}; }}
QLabel[role="tag"] {{ color: {t.warn}; border: 1px solid {t.warn}; border-radius: 4px; padding: 1px 6px; }}
QPushButton {{ background: {t.raised}; color: {t.text}; border: 1px solid {button_border}; border-radius: 6px;
    padding: 6px 14px; min-height: 18px; }}
QPushButton:hover {{ background: {t.border if t.name != "contrast" else t.raised}; }}
QPushButton:pressed {{ background: {t.inset}; }}
QPushButton:focus {{ border: 2px solid {t.accent}; padding: 5px 13px; }}
QPushButton:disabled {{ color: {t.text3}; background: {t.inset}; border-color: {t.border}; }}
QPushButton[kind="primary"] {{ background: {t.accent}; color: {t.on_accent}; border: 1px solid {t.accent};
    font-weight: 600; }}
QPushButton[kind="primary"]:hover {{ background: {t.accent_hover}; }}
QPushButton[kind="primary"]:focus {{ border: 2px solid {t.text}; }}
QPushButton[kind="primary"]:disabled {{ background: {t.raised}; color: {t.text3}; border-color: {t.border}; }}
QPushButton[kind="danger"] {{ color: {t.error}; border-color: {t.error}; background: transparent; }}
QPushButton[kind="danger"]:hover {{ background: {t.error_soft}; }}
QPushButton[kind="danger"]:focus {{ border: 2px solid {t.accent}; }}
QPushButton[kind="ghost"] {{ background: transparent; border: 1px solid transparent; color: {t.text2};
    padding: 4px 8px; }}
QPushButton[kind="ghost"]:hover {{ background: {t.raised}; color: {t.text}; }}
QPushButton[kind="ghost"]:focus {{ border: 2px solid {t.accent}; padding: 3px 7px; }}
QPushButton[kind="ghost"]:disabled {{ color: {t.text3}; }}
QPushButton[kind="link"] {{ background: transparent; border: 1px solid transparent; color: {t.accent};
    padding: 1px 3px; text-align: left; min-height: 16px; }}
QPushButton[kind="link"]:hover {{ text-decoration: underline; }}
QPushButton[kind="link"]:focus {{ border: 2px solid {t.accent}; padding: 0 2px; }}
QPushButton[kind="link"]:disabled {{ color: {t.text3}; }}
QPushButton[kind="chooser"] {{ background: transparent; border: 1px solid transparent; color: {t.text};
    padding: 0 4px 0 0; min-height: 18px; text-align: right; }}
QPushButton[kind="chooser"]:hover {{ background: {t.raised}; }}
QPushButton[kind="chooser"]:focus {{ border: 2px solid {t.accent}; padding: 0 3px 0 0; min-height: 16px; }}
QPushButton[kind="number"] {{ background: transparent; border: 1px solid transparent; color: {t.text}; padding: 0;
    text-align: left; }}
QPushButton[kind="number"]:hover {{ color: {t.accent}; }}
QPushButton[kind="number"]:focus {{ border: 2px solid {t.accent}; }}
QPushButton[kind="number"]:disabled {{ color: {t.text}; }}
QPushButton::menu-indicator {{ image: none; width: 0; }}
QLineEdit, QPlainTextEdit#Composer, QSpinBox {{ background: {t.surface if t.is_light else t.inset}; color: {t.text};
    border: 1px solid {t.border_strong}; border-radius: 6px; padding: 5px 8px;
    selection-background-color: {t.accent}; selection-color: {t.on_accent}; }}
QLineEdit:focus, QSpinBox:focus {{ border: 2px solid {t.accent}; padding: 4px 7px; }}
QLineEdit[kind="number"], QLineEdit[kind="number"]:focus {{ padding: 0 4px; }}
QPlainTextEdit#Details {{ background: {t.inset}; color: {t.text}; border: 1px solid {t.border}; border-radius: 6px; }}
QCheckBox {{ color: {t.text}; spacing: 8px; }}
QToolTip {{ background: {t.raised}; color: {t.text}; border: 1px solid {t.border_strong}; padding: 6px 8px; }}
QScrollBar:vertical {{ background: transparent; width: 10px; margin: 2px; }}
QScrollBar::handle:vertical {{ background: {t.border_strong}; border-radius: 3px; min-height: 32px; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 2px; }}
QScrollBar::handle:horizontal {{ background: {t.border_strong}; border-radius: 3px; min-width: 32px; }}
QScrollBar::add-line, QScrollBar::sub-line {{ height: 0; width: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
QScrollArea {{ border: 0; background: transparent; }}
QScrollArea > QWidget > QWidget {{ background: transparent; }}
QMenu {{ background: {t.surface}; color: {t.text}; border: 1px solid {t.border_strong}; border-radius: 8px;
    padding: 4px; }}
QMenu::item {{ padding: 6px 24px 6px 12px; border-radius: 4px; }}
QMenu::item:selected {{ background: {t.raised}; }}
QMenu::item:disabled {{ color: {t.text3}; }}
QMenu::separator {{ height: 1px; background: {t.border}; margin: 4px 8px; }}
"""


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
