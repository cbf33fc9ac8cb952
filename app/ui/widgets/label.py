"""A line of text in one of the sizes of the design. Names and causes come from elsewhere: nothing in them is markup."""

from html import escape

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget
from typing_extensions import override

from app.ui.theme import Weight, display_font, ui_font


def restyle(widget: QWidget, name: str, value: str) -> None:
    """Set a property the style sheet looks at (`role`, `kind`) and let the sheet look again."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def plain_tip(text: str) -> str:
    """A tool tip that shows `text` as it is: Qt takes whatever looks like HTML for HTML."""
    return f'<span style="white-space: pre-wrap">{escape(text)}</span>' if "<" in text or "&" in text else text


def no_mnemonic(text: str) -> str:
    """A text for a button or a menu, where "&" would underline the next letter."""
    return text.replace("&", "&&")


class Label(QLabel):
    """Plain text. `px` is a pixel size; `role` one of muted, faint, warn, error, ok, or empty for normal text."""

    def __init__(
        self,
        text: str = "",
        px: int = 13,
        weight: Weight = Weight.Normal,
        *,
        role: str = "",
        display: bool = False,
        wrap: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(text, parent)
        self.setFont(display_font(px, weight) if display else ui_font(px, weight))
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", role)
        self.setWordWrap(wrap)

    def say(self, text: str, role: str | None = None) -> None:
        """Change the text and, if given, the role."""
        if text != self.text():
            self.setText(text)
        if role is not None:
            restyle(self, "role", role)


class ElidedLabel(Label):
    """One line that gives way: what does not fit ends in an ellipsis and is in the tool tip, above the hint."""

    def __init__(
        self,
        text: str = "",
        px: int = 13,
        weight: Weight = Weight.Normal,
        *,
        role: str = "",
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(text, px, weight, role=role, parent=parent)
        self._hint = ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def say_hint(self, hint: str) -> None:
        """What the tool tip says of the text."""
        self._hint = hint
        self.setAccessibleDescription(hint)
        self.update()

    @override
    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        shown = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        said = (self.text() if shown != self.text() else "", self._hint)
        self.setToolTip(plain_tip("\n".join(line for line in said if line)))
        painter = QPainter(self)
        painter.setFont(self.font())
        painter.setPen(self.palette().color(self.foregroundRole()))
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
        painter.end()
