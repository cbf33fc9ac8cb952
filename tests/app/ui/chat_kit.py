"""What a person does on the Chat page and sees there, in a few words each."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QWidget

from app.core.session import EngineStage, SessionState
from app.ui.pages.chat_page import ChatPage
from app.ui.widgets.message_rows import AnswerRow, DividerRow, UserRow
from tests.app.link.chat_server import ChatServer, Exchange
from tests.support.tiny_plan import tiny_plan


def ready(server: ChatServer, context_tokens: int = 512) -> SessionState:
    """An engine that this server answers for."""
    plan = tiny_plan(context_tokens=context_tokens)
    return SessionState(stage=EngineStage.READY, plan=plan, host="127.0.0.1", port=server.port)


def silent(exchange: Exchange) -> None:
    """An engine that is still reading the prompt."""
    exchange.go_on.wait(10)


def write(page: ChatPage, text: str) -> None:
    """Type a message and press Enter."""
    QTest.keyClicks(page.composer.edit, text)
    QTest.keyClick(page.composer.edit, Qt.Key.Key_Return)


def rows(page: ChatPage) -> list[str]:
    """The message column in words."""
    said = []
    for row in page.column.list.rows:
        if isinstance(row, UserRow):
            said.append(f"You: {row.text.toPlainText()}")
        elif isinstance(row, AnswerRow):
            said.append(f"Model: {row.body.source}")
        elif isinstance(row, DividerRow):
            said.append("---")
    return said


def words(parent: QWidget, kind: type[QWidget]) -> list[str]:
    """Names of the visible widgets of a kind."""
    return [child.accessibleName() for child in parent.findChildren(kind) if child.isVisible()]


def spoken(widget: QWidget) -> str:
    """What a screen reader calls a widget."""
    return QAccessible.queryAccessibleInterface(widget).text(QAccessible.Text.Name)


def press(page: QWidget, label: str) -> None:
    """Click the one visible button with this text."""
    (button,) = [b for b in page.findChildren(QPushButton) if b.text() == label and b.isVisible()]
    button.click()


def line(answer: AnswerRow) -> str:
    """What stands below an answer."""
    return answer.line.text()
