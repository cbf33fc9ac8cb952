"""Read-only text that is exactly as high as it needs to be."""

from typing import Final

from PySide6.QtCore import QMimeData, QPointF, QRectF, QSizeF, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QPainter, QPaintEvent, QTextBlock, QTextOption, QWheelEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser, QWidget
from typing_extensions import override

from app.chat.markdown import link_target
from app.ui.markdown_writer import INDENT_PX, PAD, QUOTE_DEPTH, QUOTE_PX
from app.ui.theme import Theme, color

_BAR_PX: Final = 3


class FittedText(QTextBrowser):
    """A part of a message: can be selected and copied as plain text, loads nothing, scrolls with its page.

    Links open in the system's program for them, on a click or Enter; other schemes than web and mail do nothing.
    """

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setOpenLinks(False)
        self.anchorClicked.connect(self._open)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setStyleSheet("background: transparent;")
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setTabChangesFocus(True)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Message text")
        document = self.document()
        document.setDocumentMargin(0)
        document.setUndoRedoEnabled(False)
        document.setIndentWidth(INDENT_PX)
        document.documentLayout().documentSizeChanged.connect(self._fit)

    @override
    def loadResource(self, type: int, name: QUrl | str) -> None:
        """Nothing is ever loaded."""

    @override
    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the page scrolls, not the message

    @override
    def createMimeDataFromSelection(self) -> QMimeData:
        """Plain text: colours of a dark window are of no use elsewhere."""
        data = QMimeData()
        data.setText(self.textCursor().selection().toPlainText().replace(PAD, ""))
        return data

    @override
    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter: QPainter | None = None
        block = self.document().firstBlock()
        while block.isValid():
            if depth := block.blockFormat().property(QUOTE_DEPTH):
                painter = painter or QPainter(self.viewport())
                self._paint_bars(painter, block, depth)
            block = block.next()
        if painter is not None:
            painter.end()

    def _paint_bars(self, painter: QPainter, block: QTextBlock, depth: int) -> None:
        layout = self.document().documentLayout()
        area = layout.blockBoundingRect(block)
        following = block.next()
        bottom = area.bottom()
        if following.isValid() and following.blockFormat().property(QUOTE_DEPTH):
            bottom = layout.blockBoundingRect(following).top()  # no gap between two paragraphs of a quote
        for level in range(depth):
            corner = QPointF(level * QUOTE_PX + 2, area.top())
            painter.fillRect(
                QRectF(corner, QSizeF(_BAR_PX, bottom - area.top())), color(self._theme.tokens.border_strong)
            )

    def _open(self, url: QUrl) -> None:
        if link_target(url.toString()) is not None:
            QDesktopServices.openUrl(url)

    def _fit(self, size: QSizeF) -> None:
        height = int(size.height() + 1)
        if height != self.height():
            self.setFixedHeight(height)
