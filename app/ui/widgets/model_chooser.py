"""The model of the split: its name is a button that opens the list of models."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QWidget

from app.core.library import ModelEntry
from app.ui.theme import Theme, Weight, ui_font
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.label import no_mnemonic, plain_tip
from app.ui.widgets.menu import round_menu
from app.ui.wording import short_name, shortened

_LONGEST_NAME = 48


class ModelChooser(ActionButton):
    """Signals:
    chosen: another model was chosen (Path of its folder).
    add_wanted: a folder is to be added.
    """

    chosen = Signal(object)
    add_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "Choose a model", icon="chevron-down", kind="chooser", parent=parent)
        self.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # the arrow stands behind the name
        self.setFont(ui_font(13, Weight.DemiBold))
        self._shown: tuple[tuple[ModelEntry, ...], ModelEntry | None] | None = None
        self._menu = round_menu(self)
        self._menu.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self._menu.setToolTipsVisible(True)
        self.clicked.connect(self.open)

    def show_models(self, entries: Sequence[ModelEntry], current: ModelEntry | None) -> None:
        """Take another list; entries of one name are told apart by their folder, in the tool tip."""
        shown = (tuple(entries), current)
        if shown == self._shown:
            return
        self._shown = shown
        name = "Choose a model" if current is None else current.name
        self.show_as(short_name(name), icon="chevron-down", kind="chooser", hint="Choose a model (Ctrl+L)")
        if current is not None:
            self.setToolTip(plain_tip(f"{current.folder}\nChoose a model (Ctrl+L)"))
        self.setAccessibleName(f"Model: {name}")
        self._menu.clear()
        group = QActionGroup(self._menu)
        for entry in entries:
            action = self._menu.addAction(no_mnemonic(shortened(entry.name, _LONGEST_NAME)))
            action.setToolTip(plain_tip(str(entry.folder)))
            action.setCheckable(True)
            action.setChecked(current is not None and entry.folder == current.folder)
            action.setActionGroup(group)
            action.triggered.connect(lambda _=False, folder=entry.folder: self._choose(folder))
        if entries:
            self._menu.addSeparator()
        self._menu.addAction("Add a model folder…").triggered.connect(lambda: self.add_wanted.emit())

    @property
    def menu_actions(self) -> tuple[str, ...]:
        """Texts of the menu, top to bottom."""
        return tuple(action.text().replace("&&", "&") for action in self._menu.actions() if not action.isSeparator())

    def open(self) -> None:
        """Drop the menu down."""
        if self.isEnabled():
            self._menu.popup(self.mapToGlobal(QPoint(0, self.height() + 2)))

    def choose_entry(self, index: int) -> None:
        """What a click on an entry of the menu does."""
        self._menu.actions()[index].trigger()

    def _choose(self, folder: Path) -> None:
        self.chosen.emit(folder)
