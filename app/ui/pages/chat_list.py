"""The chats at the left: by day, with search, new, rename and delete."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QAction, QFontMetrics, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)
from typing_extensions import override

from app.chat.store import ChatSummary
from app.ui import icons
from app.ui.theme import Theme, Weight, color, ui_font
from app.ui.widgets.icon_button import IconButton
from app.ui.widgets.label import Label, plain_tip
from app.ui.widgets.menu import round_menu
from app.ui.widgets.tier_paint import rounded

WIDTH_PX: Final = 224
_ROW_PX: Final = 36
_HEADING_PX: Final = 30
_Index = QModelIndex | QPersistentModelIndex
_ROOT: Final = QModelIndex()


def by_day(chats: Sequence[ChatSummary], today: date) -> list[str | ChatSummary]:
    """Chats in their order, with a heading before each group: Today, Yesterday, Earlier."""
    names = {today: "Today", today - timedelta(days=1): "Yesterday"}
    rows: list[str | ChatSummary] = []
    heading = ""
    for chat in chats:
        day = datetime.fromtimestamp(chat.changed_s).date()  # the user's own days
        if (name := names.get(day, "Earlier")) != heading:
            heading = name
            rows.append(heading)
        rows.append(chat)
    return rows


class ChatListModel(QAbstractListModel):
    """Headings and chats; a chat's title can be edited.

    Signals:
        renamed: the user typed another title (id of the chat, title).
    """

    renamed = Signal(int, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows: list[str | ChatSummary] = []

    def show_rows(self, rows: list[str | ChatSummary]) -> None:
        if rows != self._rows:
            self.beginResetModel()
            self._rows = rows
            self.endResetModel()

    def chat_at(self, index: _Index) -> ChatSummary | None:
        """The chat of a row; None for a heading."""
        row = self._rows[index.row()] if index.isValid() else None
        return row if isinstance(row, ChatSummary) else None

    def index_of(self, chat_id: int | None) -> QModelIndex:
        for number, row in enumerate(self._rows):
            if isinstance(row, ChatSummary) and row.id == chat_id:
                return self.index(number, 0)
        return QModelIndex()

    @override
    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    @override
    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        row = self._rows[index.row()]
        title = row.title if isinstance(row, ChatSummary) else row
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole, Qt.ItemDataRole.AccessibleTextRole):
            return title
        return plain_tip(title) if role == Qt.ItemDataRole.ToolTipRole and isinstance(row, ChatSummary) else None

    @override
    def setData(self, index: _Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        chat = self.chat_at(index)
        title = str(value).strip()
        if chat is None or not title or title == chat.title:
            return False
        self.renamed.emit(chat.id, title)  # the list is read anew from the store
        return True

    @override
    def flags(self, index: _Index) -> Qt.ItemFlag:
        if self.chat_at(index) is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable


class _Painter(QStyledItemDelegate):
    """Headings small and quiet, the open chat on a raised field."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme

    @override
    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        is_chat = bool(index.flags() & Qt.ItemFlag.ItemIsSelectable)
        return QSize(10, _ROW_PX if is_chat else _HEADING_PX)

    @override
    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        tokens = self._theme.tokens
        area: QRect = option.rect
        state: QStyle.StateFlag = option.state
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        is_chat = bool(index.flags() & Qt.ItemFlag.ItemIsSelectable)
        is_open = bool(state & QStyle.StateFlag.State_Selected)
        if is_chat:
            field = rounded(QRectF(area).adjusted(0, 1, 0, -1), 6)
            if is_open:
                painter.fillPath(field, color(tokens.raised))
            elif state & QStyle.StateFlag.State_MouseOver:
                painter.fillPath(field, color(tokens.text, 16))
            if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_KeyboardFocusChange:
                painter.setPen(color(tokens.accent))
                painter.drawPath(field)
            font = ui_font(13, Weight.DemiBold if is_open else Weight.Normal)
            painter.setPen(color(tokens.text if is_open else tokens.text2))
            inside = area.adjusted(11, 0, -8, 0)
        else:
            font = ui_font(11, Weight.DemiBold)
            painter.setPen(color(tokens.text3))
            inside = area.adjusted(0, 4, 0, 0)
        painter.setFont(font)
        title = QFontMetrics(font).elidedText(str(index.data()), Qt.TextElideMode.ElideRight, inside.width())
        painter.drawText(inside, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, title)
        painter.restore()


class ChatListPane(QWidget):
    """Signals:
    chosen: open this chat (id).
    new_asked: begin a new chat.
    renamed: the user typed another title (id, title).
    delete_asked: the user wants a chat gone (id, title).
    save_asked: the user wants a chat in a file of its own (id, title).
    searched: the text to look for changed (str).
    """

    chosen = Signal(int)
    new_asked = Signal()
    renamed = Signal(int, str)
    delete_asked = Signal(int, str)
    save_asked = Signal(int, str)
    searched = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setFixedWidth(WIDTH_PX)
        new = IconButton(theme, "plus", "New chat (Ctrl+N)")
        new.clicked.connect(self.new_asked)
        head = QHBoxLayout()
        head.addWidget(Label("Chats", 15, Weight.DemiBold))
        head.addStretch()
        head.addWidget(new)
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search chats (Ctrl+K)")
        self.search.setAccessibleName("Search chats")
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self.searched)
        self._lens = QAction(self.search)
        self.search.addAction(self._lens, QLineEdit.ActionPosition.LeadingPosition)
        self.model = ChatListModel(self)
        self.model.renamed.connect(self.renamed)
        self.view = QListView()
        self.view.setModel(self.model)
        self.view.setItemDelegate(_Painter(theme, self.view))
        self.view.setFrameShape(QFrame.Shape.NoFrame)
        self.view.setStyleSheet("background: transparent;")
        self.view.setMouseTracking(True)
        self.view.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.view.customContextMenuRequested.connect(self._show_menu)
        self.view.setAccessibleName("Chats")
        self.view.selectionModel().currentChanged.connect(self._moved)
        self._nothing = Label("", 12, role="faint", wrap=True)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 14, 10, 12)
        column.setSpacing(6)
        column.addLayout(head)
        column.addWidget(self.search)
        column.addWidget(self._nothing)
        column.addWidget(self.view, 1)
        theme.changed.connect(self._dress)
        self._dress()

    def show_chats(self, chats: Sequence[ChatSummary], open_id: int | None, today: date) -> None:
        """The list, with the open chat marked."""
        blocked = self.view.selectionModel().blockSignals(True)  # marking is not choosing
        self.model.show_rows(by_day(chats, today))
        index = self.model.index_of(open_id)
        self.view.setCurrentIndex(index)
        if not index.isValid():
            self.view.clearSelection()
        self.view.selectionModel().blockSignals(blocked)
        self.view.viewport().update()
        wanted = self.search.text().strip()
        self._nothing.say(f"No chat contains “{wanted}”." if wanted else "No chats yet.")
        self._nothing.setVisible(not chats)

    def menu_for(self, index: _Index) -> QMenu | None:
        """What can be done with a chat; None for a heading."""
        chat = self.model.chat_at(index)
        if chat is None:
            return None
        menu = round_menu(self)
        menu.addAction("Rename (F2)", lambda: self.view.edit(index))
        menu.addAction("Save as Markdown…", lambda: self.save_asked.emit(chat.id, chat.title))
        menu.addAction("Delete chat", lambda: self.delete_asked.emit(chat.id, chat.title))
        return menu

    def _moved(self, current: QModelIndex) -> None:
        if (chat := self.model.chat_at(current)) is not None:
            self.chosen.emit(chat.id)

    def _show_menu(self, place: QPoint) -> None:
        if (menu := self.menu_for(self.view.indexAt(place))) is not None:
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            menu.popup(self.view.viewport().mapToGlobal(place))

    def _dress(self) -> None:
        self._lens.setIcon(icons.icon("search", self._theme.tokens.text3, 16))
