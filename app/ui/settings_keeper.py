"""The settings in use. Changes are written half a second later and at the end, so that a slider writes once."""

from PySide6.QtCore import QObject, QTimer, Signal

from app.settings import Settings, SettingsError, SettingsFile

WRITE_AFTER_MS = 500


class SettingsKeeper(QObject):
    """Signals:
    failed: the settings could not be written (Problem).
    """

    failed = Signal(object)

    def __init__(self, file: SettingsFile, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = file
        self._settings = settings
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(WRITE_AFTER_MS)
        self._timer.timeout.connect(self.write)
        self._dirty = False

    @property
    def settings(self) -> Settings:
        return self._settings

    def change(self, **values: object) -> None:
        """Take other values; they are written soon."""
        self._settings = self._settings.model_copy(update=values)
        self._dirty = True
        self._timer.start()

    def write(self) -> None:
        """Write what has changed, now."""
        self._timer.stop()
        if not self._dirty:
            return
        self._dirty = False
        try:
            self._file.save(self._settings)
        except SettingsError as error:
            self.failed.emit(error.problem)
