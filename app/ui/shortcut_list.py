"""The list of shortcuts (F1, Ctrl+/)."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QGridLayout, QVBoxLayout, QWidget

from app.ui.theme import Weight, mono_font
from app.ui.widgets.label import Label

SHORTCUTS: tuple[tuple[str, str], ...] = (
    ("Ctrl+1, Ctrl+2", "Split, Chat"),
    ("F5", "Start the engine, or apply another split to it"),
    ("Shift+F5", "Stop the engine, cancel loading or measuring"),
    ("Ctrl+G", "Type an exact context"),
    ("Ctrl+L", "Choose a model"),
    ("← → in the layer strip", "Walk the layers; the menu key opens the tier menu"),
    ("← → Page Up, Page Down, Home, End", "Move the slider"),
    ("Ctrl+N", "New chat"),
    ("Ctrl+K", "Search chats"),
    ("F2 in the list of chats", "Rename a chat"),
    ("Shift+Esc", "Go to where messages are written"),
    ("Enter, Shift+Enter", "Send, new line"),
    ("Esc", "Stop the answer"),
    ("Ctrl+Shift+C, Ctrl+Shift+;", "Copy the last answer, the last code"),
    ("Ctrl+Shift+E", "Save the chat as Markdown"),
    ("F6", "Next area: rail, page"),
    ("F1, Ctrl+/", "This list"),
)


class ShortcutList(QDialog):
    """Two columns: keys and what they do."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Shortcuts")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        column = QVBoxLayout(self)
        column.setContentsMargins(26, 16, 26, 20)
        column.setSpacing(12)
        column.addWidget(Label("Shortcuts", 22, Weight.DemiBold, display=True))
        grid = QGridLayout()
        grid.setHorizontalSpacing(28)
        grid.setVerticalSpacing(8)
        for row, (keys, does) in enumerate(SHORTCUTS):
            label = Label(keys, role="muted")
            label.setFont(mono_font(12))
            grid.addWidget(label, row, 0)
            grid.addWidget(Label(does), row, 1)
        column.addLayout(grid)
