"""Movement without an end: shows that something goes on whose end is not known."""

from PySide6.QtCore import QEvent, QObject, QVariantAnimation
from PySide6.QtWidgets import QWidget
from typing_extensions import override

from app.ui.theme import Theme


class Turning(QVariantAnimation):
    """A number that goes round from 0 to 1 and repaints its widget; stands still where nobody sees or wants it."""

    def __init__(self, theme: Theme, widget: QWidget, *, round_ms: int) -> None:
        super().__init__(widget)
        self._theme = theme
        self._widget = widget
        self._wanted = False
        self.setStartValue(0.0)
        self.setEndValue(1.0)
        self.setDuration(round_ms)
        self.setLoopCount(-1)
        self.valueChanged.connect(widget.update)
        widget.installEventFilter(self)

    @property
    def turn(self) -> float:
        """Where it is, 0..1; 0 while it stands still."""
        return float(self.currentValue()) if self.state() is QVariantAnimation.State.Running else 0.0

    def want(self, wanted: bool) -> None:
        """Whether there is something to show."""
        self._wanted = wanted
        self._follow(self._widget.isVisible())

    @override
    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Show, QEvent.Type.Hide):
            self._follow(event.type() is QEvent.Type.Show)
        return False

    def _follow(self, is_visible: bool) -> None:
        runs = self._wanted and is_visible and self._theme.animated
        if runs is not (self.state() is QVariantAnimation.State.Running):
            self.start() if runs else self.stop()
            self._widget.update()
