"""A menu with round corners: without this the system paints a square behind them."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu, QWidget


def round_menu(parent: QWidget | None = None) -> QMenu:
    """An empty menu in the look of the style sheet."""
    menu = QMenu(parent)
    menu.setWindowFlags(menu.windowFlags() | Qt.WindowType.FramelessWindowHint | Qt.WindowType.NoDropShadowWindowHint)
    menu.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
    return menu
