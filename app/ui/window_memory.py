"""What the window remembers between runs: its place, and the answer to the question when it is closed."""

from pathlib import Path
from typing import Literal

from PySide6.QtCore import QByteArray, QSettings

CloseAnswer = Literal["keep", "exit"]


class WindowMemory:
    """A small ini file in the profile; everything else is in settings.json."""

    def __init__(self, file: Path) -> None:
        self._settings = QSettings(str(file), QSettings.Format.IniFormat)

    @property
    def geometry(self) -> QByteArray | None:
        value = self._settings.value("window/geometry")
        return value if isinstance(value, QByteArray) else None

    @geometry.setter
    def geometry(self, value: QByteArray) -> None:
        self._settings.setValue("window/geometry", value)

    @property
    def close_answer(self) -> CloseAnswer | None:
        """What the close button does while an engine runs; None: ask."""
        value = self._settings.value("window/close_answer")
        return "keep" if value == "keep" else "exit" if value == "exit" else None

    @close_answer.setter
    def close_answer(self, value: CloseAnswer) -> None:
        self._settings.setValue("window/close_answer", value)

    def save(self) -> None:
        """Write to disk now."""
        self._settings.sync()
