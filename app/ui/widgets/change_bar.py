"""Below the slider of a running engine: what another split would change, and the buttons to make or forget it."""

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget
from typing_extensions import override

from app.ui import icons
from app.ui.split_view import ChangeView
from app.ui.theme import Theme, Weight, color
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.label import Label
from app.ui.widgets.turning import Turning

_ROUND_MS = 1_100
_LEAST_SHARE = 0.08  # less of an arc cannot be seen
_OPEN_SHARE = 0.3  # of the arc that turns
_MARK_PX = 20


class _Mark(QWidget):
    """An arc that turns or grows while something goes on; else a sign: layers that change places, or a warning."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._busy = False
        self._sign = "split"
        self._share: float | None = None
        self._turning = Turning(theme, self, round_ms=_ROUND_MS)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def show_view(self, view: ChangeView) -> None:
        self._busy = view.busy
        self._sign = {"muted": "split", "warn": "warn", "error": "warn"}[view.tone]
        self._share = view.share
        self._turning.want(view.busy and view.share is None)
        self.update()

    @override
    def sizeHint(self) -> QSize:
        return QSize(_MARK_PX, _MARK_PX)

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        t = self._theme.tokens
        if not self._busy:
            tint = t.accent if self._sign == "split" else t.warn
            painter.drawPixmap(QPointF(0, 0), icons.pixmap(self._sign, tint, _MARK_PX, self.devicePixelRatioF()))
        else:
            box = QRectF(3, 3, _MARK_PX - 6, _MARK_PX - 6)
            painter.setPen(QPen(color(t.accent, 70), 2))
            painter.drawEllipse(box)
            painter.setPen(QPen(color(t.accent), 2))
            share = _OPEN_SHARE if self._share is None else max(_LEAST_SHARE, self._share)
            painter.drawArc(box, round((90 - 360 * self._turning.turn) * 16), -round(share * 360 * 16))
        painter.end()


class ChangeBar(QWidget):
    """Shows a `ChangeView`, or nothing and takes no room.

    Signals:
        apply_wanted: the change is to be made.
        undo_wanted: it is to be forgotten, or called off.
    """

    apply_wanted = Signal()
    undo_wanted = Signal()

    def __init__(self, theme: Theme, home: QWidget, parent: QWidget | None = None) -> None:
        """`home` gets the keyboard back when the button that had it is gone."""
        super().__init__(parent)
        self._theme = theme
        self._home = home
        self._view: ChangeView | None = None
        self._mark = _Mark(theme)
        self._title = Label("", 13, Weight.DemiBold, wrap=True)
        self._text = Label("", 12, role="muted", wrap=True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.undo = ActionButton(theme, "", kind="ghost")
        self.apply = ActionButton(theme, "", kind="primary")
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(self._title)
        words.addWidget(self._text)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 10, 8)
        row.setSpacing(8)
        row.addWidget(self._mark, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(words, 1)
        row.addWidget(self.undo, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.apply, 0, Qt.AlignmentFlag.AlignVCenter)
        self.undo.clicked.connect(self.undo_wanted)
        self.apply.clicked.connect(self.apply_wanted)
        self.hide()

    @property
    def view(self) -> ChangeView | None:
        """What is shown."""
        return self._view

    def show_change(self, view: ChangeView | None) -> None:
        """Take another change. The keyboard comes back to a button, or home, unless the user has taken it elsewhere."""
        if view == self._view:
            return
        had_keyboard = self.window().focusWidget() in (self.apply, self.undo, self)
        self._view = view
        if view is not None:
            self._title.say(view.title)
            self._text.say(view.text, view.tone)
            self._mark.show_view(view)
            self.apply.show_as(view.apply, kind="primary", hint=view.hint)
            self.apply.setEnabled(view.enabled)
            self.undo.show_as(view.undo, kind="ghost")
            self.setAccessibleName(view.title)
            self.setAccessibleDescription(view.text)
        if had_keyboard:
            self.setFocus(Qt.FocusReason.OtherFocusReason)  # before a button goes, or Qt would pass it on
        self.apply.setVisible(view is not None and bool(view.apply))
        self.undo.setVisible(view is not None and bool(view.undo))
        self.setVisible(view is not None)
        if had_keyboard:
            self._keep_keyboard()

    def _keep_keyboard(self) -> None:
        """Here, where a screen reader hears how it goes on, while there is no button to press."""
        homes = (self._home,) if self._view is None else (self.apply, self.undo, self)
        able = [widget for widget in homes if widget.isVisibleTo(self.window()) and widget.isEnabled()]
        if able:
            able[0].setFocus(Qt.FocusReason.ShortcutFocusReason)

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        t = self._theme.tokens
        tone = "muted" if self._view is None else self._view.tone
        soft, edge = (t.info_soft, t.accent) if tone == "muted" else (t.warn_soft, t.warn)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(color(edge), 1))
        painter.setBrush(color(soft))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        painter.end()
