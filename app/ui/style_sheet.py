"""What Qt itself paints: Fusion's palette and the style sheet, both made of tokens."""

from PySide6.QtGui import QColor, QPalette

from app.ui.tokens import Tokens


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
    buttons (primary, danger, ghost, link, inplace, number, chooser); object names `Page`, `Rail`, `Card`, `Line`,
    `Composer`."""
    t = tokens
    button_border = t.border if t.name == "dark" else t.border_strong
    # The chooser runs from right to left, and its paddings with it.
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
QPushButton[kind="inplace"] {{ background: transparent; border: 1px solid transparent; color: {t.accent}; padding: 0;
    text-align: left; min-height: 18px; }}
QPushButton[kind="inplace"]:hover {{ text-decoration: underline; }}
QPushButton[kind="inplace"]:focus {{ border: 2px solid {t.accent}; }}
QPushButton[kind="chooser"] {{ background: transparent; border: 1px solid transparent; color: {t.text};
    padding: 0 0 0 4px; min-height: 18px; text-align: right; }}
QPushButton[kind="chooser"]:hover {{ background: {t.raised}; }}
QPushButton[kind="chooser"]:focus {{ border: 2px solid {t.accent}; padding: 0 0 0 3px; min-height: 16px; }}
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
QToolTip {{ background: {t.raised}; color: {t.text}; border: 1px solid {t.border_strong}; padding: 2px 4px; }}
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
