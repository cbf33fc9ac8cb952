"""One notice above the cards: what happened, the numbers, and the cure as a button."""

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget
from typing_extensions import override

from app.ui import icons
from app.ui.notices import DISMISS, Notice
from app.ui.theme import Theme, Weight, color, mono_font
from app.ui.widgets.action_button import ActionButton
from app.ui.widgets.icon_button import IconButton
from app.ui.widgets.label import Label

_LEFT_PX, _RIGHT_PX, _CROSS_PX = 46, 10, 40
_LEAST_WORDS_PX, _MOST_LINES = 340, 3
_ICONS = {"error": "error", "warn": "warn", "info": "info", "ok": "tick"}


class Banner(QWidget):
    """Shows a `Notice`.

    Signals:
        acted: a button was pressed (its id; `DISMISS` for the cross).
    """

    acted = Signal(str)

    def __init__(self, theme: Theme, notice: Notice, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.notice = notice
        outer = self._outer = QVBoxLayout(self)
        outer.setContentsMargins(_LEFT_PX, 9, _RIGHT_PX, 9)
        outer.setSpacing(8)
        row = self._row = QHBoxLayout()
        row.setSpacing(8)
        words = QVBoxLayout()
        words.setSpacing(1)
        self._title = Label("", 13, Weight.DemiBold, wrap=True)
        self._text = Label("", 12, role="muted", wrap=True)
        for label, said in ((self._title, notice.title), (self._text, notice.text)):
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            label.setHidden(not said)
            words.addWidget(label)
        self._details: QPlainTextEdit | None = None
        row.addLayout(words, 1)
        outer.addLayout(row)
        self._buttons = QWidget()
        row.addWidget(self._buttons, 0, Qt.AlignmentFlag.AlignVCenter)  # before the details: Tab comes to it first
        buttons = QHBoxLayout(self._buttons)
        buttons.setContentsMargins(0, 0, 0, 0)
        self._buttons.setContentsMargins(4, 0, 0, 0)
        buttons.setSpacing(8)
        for action in notice.actions:
            button = ActionButton(theme, action.label, kind=action.kind)
            button.clicked.connect(lambda _=False, wanted=action.id: self.acted.emit(wanted))
            buttons.addWidget(button)
        if notice.details:
            buttons.addWidget(self._build_details(outer))
        self._below = False
        if notice.dismissable:
            cross = IconButton(theme, "close", "Dismiss")
            cross.clicked.connect(lambda: self.acted.emit(DISMISS))
            row.addWidget(cross, 0, Qt.AlignmentFlag.AlignVCenter)
        self.say(notice)

    @override
    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place_buttons(event.size().width())
        super().resizeEvent(event)

    def _place_buttons(self, width_px: int) -> None:
        """Beside the words, or below them where beside would leave a column of single words."""
        beside = width_px - _LEFT_PX - _RIGHT_PX - self._buttons.sizeHint().width() - _CROSS_PX
        is_long = self._text.fontMetrics().horizontalAdvance(self.notice.text) > _MOST_LINES * max(1, beside)
        below = beside < _LEAST_WORDS_PX and is_long
        if below is self._below:
            return
        self._below = below
        self._buttons.setContentsMargins(0 if below else 4, 0, 0, 0)
        if below:
            self._row.removeWidget(self._buttons)
            self._outer.insertWidget(1, self._buttons, 0, Qt.AlignmentFlag.AlignLeft)
        else:
            self._outer.removeWidget(self._buttons)
            self._row.insertWidget(1, self._buttons, 0, Qt.AlignmentFlag.AlignVCenter)

    def can_say(self, notice: Notice) -> bool:
        """Whether another notice is the same news with other numbers, and has the same buttons."""
        old = self.notice
        return (notice.matter, notice.actions, notice.dismissable, bool(notice.text), bool(notice.details)) == (
            (old.matter, old.actions, old.dismissable, bool(old.text), bool(old.details))
        )

    def say(self, notice: Notice) -> None:
        """Other numbers in the same place: the keyboard stays on its button, open details stay open."""
        self.notice = notice
        self.setAccessibleName(notice.title)
        self.setAccessibleDescription(notice.text)
        self._title.say(notice.title)
        self._text.say(notice.text)
        if self._details is not None and self._details.toPlainText() != notice.details:
            self._details.setPlainText(notice.details)

    def _build_details(self, outer: QVBoxLayout) -> ActionButton:
        details = self._details = QPlainTextEdit()
        details.setObjectName("Details")
        details.setReadOnly(True)
        details.setFont(mono_font(12))
        details.setAccessibleName("Details")
        lines = self.notice.details.count("\n") + 1
        details.setFixedHeight(min(160, 14 + details.fontMetrics().lineSpacing() * lines))
        copy = ActionButton(self._theme, "Copy", icon="copy", kind="ghost")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.notice.details))
        box = QWidget()
        row = QHBoxLayout(box)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(details, 1)
        row.addWidget(copy, 0, Qt.AlignmentFlag.AlignTop)
        box.hide()
        outer.addWidget(box)
        toggle = ActionButton(self._theme, "Details", kind="ghost")
        toggle.clicked.connect(lambda: box.setVisible(box.isHidden()))
        return toggle

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        t = self._theme.tokens
        soft, edge = {
            "error": (t.error_soft, t.error),
            "warn": (t.warn_soft, t.warn),
            "info": (t.info_soft, t.accent),
            "ok": (t.inset, t.ok),
        }[self.notice.severity]
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(color(edge), 1))
        painter.setBrush(color(soft))
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 8, 8)
        picture = icons.pixmap(_ICONS[self.notice.severity], edge, 20, self.devicePixelRatioF())
        one_line = not self.notice.text and not self.notice.details
        painter.drawPixmap(QPointF(15, (self.height() - 20) / 2 if one_line else 10), picture)
        painter.end()
