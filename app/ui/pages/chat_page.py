"""The Chat page: chats at the left, the open one at the right, and where the next message is written."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Final

from PySide6.QtCore import QCoreApplication, QPoint, QStandardPaths, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget
from typing_extensions import override

from app.chat.context_use import ContextUse, context_use
from app.chat.conversation import UNTITLED
from app.chat.export import file_name
from app.chat.store import ChatStore
from app.core.session import EngineStage, SessionState
from app.link.chat_flow import ChatFlow
from app.link.stream import ChatStream
from app.ui.pages.chat_column import ChatColumn
from app.ui.pages.chat_list import ChatListPane
from app.ui.pages.chat_words import KEPT, START, can_start, engine_notice, session_line, stage_words
from app.ui.question import Question
from app.ui.theme import Theme, Weight
from app.ui.widgets.banner_stack import BannerStack
from app.ui.widgets.card import Line
from app.ui.widgets.composer import Composer
from app.ui.widgets.empty_state import EmptyState
from app.ui.widgets.icon_button import IconButton
from app.ui.widgets.label import ElidedLabel
from app.ui.widgets.message_centre import Centred
from app.ui.widgets.message_list import COLUMN_PX

_DRAFT_MS: Final = 500
_COMPOSER_PX: Final = COLUMN_PX + 24  # its border stands out beside the text


class ChatPage(QWidget):
    """Signals:
    start_requested: the user wants the engine started.
    end_requested: the engine does not answer, and the user wants it ended.
    """

    start_requested = Signal()
    end_requested = Signal()

    def __init__(
        self,
        theme: Theme,
        store: ChatStore,
        stream: ChatStream,
        parent: QWidget | None = None,
        *,
        today: Callable[[], date] = date.today,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("Page")
        self._theme = theme
        self._state = SessionState()
        self._today = today
        self.may_delete: Callable[[str], bool] = self._ask_delete
        self.pick_file: Callable[[str], Path | None] = self._ask_file
        self.flow = ChatFlow(store, stream, self)
        self.chats = ChatListPane(theme)
        self.column = ChatColumn(theme, self.flow)
        self.composer = Composer(theme)
        self._title = ElidedLabel(UNTITLED, 16, Weight.DemiBold)
        self._line = ElidedLabel("", 12, role="muted")
        self._more = IconButton(theme, "more", "Rename, save or delete this chat")
        self._engine = BannerStack(theme)
        self._empty: EmptyState | None = None
        self._middle = QStackedWidget()
        self._middle.addWidget(self.column)
        self._draft_timer = QTimer(self)
        self._draft_timer.setSingleShot(True)
        self._draft_timer.setInterval(_DRAFT_MS)
        self._lay_out()
        self.setFocusProxy(self.composer.edit)
        self._connect()
        self._opened()
        self.show_session(self._state)

    def show_session(self, state: SessionState) -> None:
        """The engine as it is now."""
        stage_before, self._state = self._state.stage, state
        self.flow.show_session(state)
        if state.stage is not stage_before or self._empty is None:
            self._build_empty()
        self._refresh()

    def note_log(self, line: str) -> None:
        """One more line of the engine's log; the last one is shown if the engine falls silent."""
        self.column.last_log_line = line

    def new_chat(self) -> None:
        """Begin a chat and put the keyboard where it is written."""
        self._open(None)
        self.composer.edit.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def save_now(self) -> None:
        """Put what is typed and what is being written on disk."""
        self._draft_timer.stop()
        self.flow.save_draft(self.composer.text)
        self.flow.save_now()

    @override
    def hideEvent(self, event: QHideEvent) -> None:
        self.save_now()
        super().hideEvent(event)

    # building

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setContentsMargins(24, 12, 18, 8)
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(self._title)
        words.addWidget(self._line)
        head.addLayout(words, 1)
        head.addWidget(self._more)
        foot = QWidget()
        below = QVBoxLayout(foot)
        below.setContentsMargins(0, 4, 0, 14)
        below.setSpacing(8)
        below.addWidget(self._engine)
        below.addWidget(self.composer)
        main = QVBoxLayout()
        main.setContentsMargins(0, 0, 0, 0)
        main.setSpacing(0)
        main.addLayout(head)
        main.addWidget(Line())
        main.addWidget(self._middle, 1)
        main.addWidget(Centred(foot, most_px=_COMPOSER_PX, margin_px=14))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.chats)
        row.addWidget(Line(vertical=True))
        row.addLayout(main, 1)

    def _connect(self) -> None:
        flow, chats, composer = self.flow, self.chats, self.composer
        flow.opened.connect(self._opened)
        flow.changed.connect(self._refresh)
        flow.chats_changed.connect(self._list)
        chats.chosen.connect(self._open)
        chats.view.clicked.connect(lambda _: self._focus_input())  # the arrow keys go on through the list
        chats.new_asked.connect(self.new_chat)
        chats.renamed.connect(flow.rename)
        chats.delete_asked.connect(self._delete)
        chats.save_asked.connect(self._save_chat)
        chats.searched.connect(self._list)
        composer.send_asked.connect(self._send)
        composer.stop_asked.connect(flow.stop)
        composer.text_changed.connect(self._typed)
        self.column.take_back_asked.connect(self._take_back)
        self.column.end_engine_asked.connect(self.end_requested)
        self._engine.acted.connect(lambda _notice, action: self._acted(action))
        self._more.clicked.connect(self._show_menu)
        self._draft_timer.timeout.connect(self._save_draft)
        for keys, act in (
            ("Ctrl+K", self._focus_search),
            ("Esc", flow.stop),
            ("Shift+Esc", self._focus_input),
            ("Ctrl+Shift+C", self.column.copy_last_answer),
            ("Ctrl+Shift+;", self.column.copy_last_code),
            ("Ctrl+Shift+E", self._save_open_chat),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(act)
        if (application := QCoreApplication.instance()) is not None:
            application.aboutToQuit.connect(self.save_now)

    def _build_empty(self) -> None:
        """The engine's state decides what a chat without messages says."""
        ready = self._state.stage is EngineStage.READY
        actions = (("Start engine", START, "primary"),) if can_start(self._state) else ()
        text = "Write a message below. Chats are kept on this PC." if ready else KEPT
        if self._state.stage is EngineStage.FAILED and (problem := self._state.problem) is not None:
            text = f"{problem.sentence} {problem.fix}"
        made = EmptyState(self._theme, "chat", stage_words(self._state), text, actions)
        made.acted.connect(self._acted)
        if self._empty is not None:
            self._middle.removeWidget(self._empty)
            self._empty.deleteLater()
        self._empty = made
        self._middle.addWidget(made)

    # acting

    def _open(self, chat_id: int | None) -> None:
        if chat_id != self.flow.chat_id or chat_id is None:
            self._save_draft()
            self.flow.open(chat_id)

    def _send(self) -> None:
        text = self.composer.text
        if self.flow.send(text):
            self._draft_timer.stop()
            self.composer.set_text("")
            self.flow.save_draft("")

    def _take_back(self) -> None:
        typed = self.composer.text  # first: a chat without messages goes, and its draft with it
        if not (text := self.flow.take_back()):
            return
        self.composer.set_text(f"{text}\n\n{typed}" if typed.strip() else text)
        self._save_draft()
        self._focus_input()

    def _delete(self, chat_id: int, title: str) -> None:
        if self.may_delete(title):
            self.flow.delete(chat_id)

    def _save_open_chat(self) -> None:
        if (chat := self.flow.conversation) is not None:
            self._save_chat(chat.id, chat.title)

    def _save_chat(self, chat_id: int, title: str) -> None:
        if (file := self.pick_file(file_name(title))) is not None:
            self.flow.save_as(chat_id, file)

    def _ask_file(self, name: str) -> Path | None:
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        chosen, _ = QFileDialog.getSaveFileName(self, "Save chat", str(Path(folder) / name), "Markdown (*.md)")
        return Path(chosen) if chosen else None

    def _ask_delete(self, title: str) -> bool:
        answers = (("delete", "Delete chat", "danger"), ("keep", "Keep", "primary"))
        title = f"Delete “{title}”?"
        return (
            Question(self._theme, title, "It cannot be brought back.", answers, default="keep", parent=self).ask()
            == "delete"
        )

    def _acted(self, action: str) -> None:
        if action == START:
            self.start_requested.emit()

    def _show_menu(self) -> None:
        menu = self.chats.menu_for(self.chats.model.index_of(self.flow.chat_id))
        if menu is not None:
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            left = self._more.width() - menu.sizeHint().width()  # inside the window
            menu.popup(self._more.mapToGlobal(QPoint(left, self._more.height())))

    def _focus_search(self) -> None:
        self.chats.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.chats.search.selectAll()

    def _focus_input(self) -> None:
        self.composer.edit.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _typed(self) -> None:
        self._draft_timer.start()
        self._measure()

    def _save_draft(self) -> None:
        self._draft_timer.stop()
        self.flow.save_draft(self.composer.text)

    # showing

    def _opened(self) -> None:
        self.composer.set_text(self.flow.draft())
        self._draft_timer.stop()
        self._list()

    def _list(self) -> None:
        self.chats.show_chats(self.flow.chats(self.chats.search.text()), self.flow.chat_id, self._today())

    def _refresh(self) -> None:
        chat = self.flow.conversation
        self._title.say(UNTITLED if chat is None else chat.title)
        self._line.say(session_line(self._state))
        self._more.setVisible(chat is not None)
        self.composer.set_stops(self.flow.writing)
        has_rows = chat is not None or self.flow.problem is not None
        if self._empty is not None:
            self._middle.setCurrentWidget(self.column if has_rows else self._empty)
        notice = engine_notice(self._state) if has_rows else None
        self._engine.show_notices(() if notice is None else (notice,))
        self._measure()

    def _measure(self) -> None:
        chat = self.flow.conversation
        use = context_use(() if chat is None else chat.sent_messages, self.composer.text)
        if written := self.flow.written_tokens:
            use = ContextUse(use.tokens + written, about=True)
        context_tokens = None if self._state.plan is None else self._state.plan.context_tokens
        self.composer.meter.show_use(use, context_tokens)
