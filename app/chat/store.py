"""Chats on disk: one SQLite file in the profile folder, one writer, nothing that was typed is lost.

Write-ahead logging makes every committed change survive a killed process. The file is locked for as long as it is
open, so a second Splitpin is refused instead of mixing its writes in. Use it from one thread.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from app.chat.chat_file import open_database, set_aside, translated
from app.chat.conversation import AnswerEnd, AnswerStats, Conversation, Message, Role, title_of
from app.chat.errors import ChatStoreSetAsideError, DamagedChatStoreError, NewerChatStoreError

_NEW_CHAT: Final = 0  # key of the draft of a chat that has no messages yet

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChatSummary:
    """A line of the chat list. Times are seconds since 1970 (UTC)."""

    id: int
    title: str
    changed_s: float


class ChatStore:
    """The chats of one profile.

    Every method raises `ChatStoreError` if the disk refuses (full, gone, read-only), and `DamagedChatStoreError` if
    the file turns out to be damaged; the file then holds what was committed before.
    """

    def __init__(self, db: sqlite3.Connection, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._clock = clock
        self.file = file

    @classmethod
    def open(cls, file: Path, clock: Callable[[], float] = time.time) -> Self:
        """Open or create the file; changes nothing in a file it cannot use.

        Raises:
            ChatStoreBusyError: another process has it open.
            NewerChatStoreError: a newer Splitpin wrote it.
            DamagedChatStoreError: it is something else, or broken.
            ChatStoreError: the folder or the disk refuses.
        """
        return cls(open_database(file), file, clock)

    @classmethod
    def open_or_set_aside(
        cls, file: Path, clock: Callable[[], float] = time.time
    ) -> tuple[Self, ChatStoreSetAsideError | None]:
        """Open the file; one that is damaged or too new is renamed, never deleted, and a new one is begun.

        Returns:
            The store, and what to tell the user if a file was set aside.

        Raises:
            ChatStoreBusyError: another process has it open.
            ChatStoreError: the folder or the disk refuses.
        """
        try:
            return cls.open(file, clock), None
        except (DamagedChatStoreError, NewerChatStoreError) as reason:
            kept = set_aside(file, reason)
            return cls.open(file, clock), ChatStoreSetAsideError(reason, kept)

    @classmethod
    def in_memory(cls, clock: Callable[[], float] = time.time) -> Self:
        """A store that forgets everything when it is closed: for tests, and for a profile that cannot be written."""
        return cls(open_database(None), Path(":memory:"), clock)

    def close(self) -> None:
        """Give the file back. The store cannot be used afterwards."""
        self._db.close()

    # chats

    def chats(self, containing: str = "") -> list[ChatSummary]:
        """All chats, the last changed first; with `containing` only those with that text in title or messages."""
        wanted = containing.strip()
        if not wanted:
            query = "SELECT id, title, changed_s FROM chats ORDER BY changed_s DESC, id DESC"
            return [ChatSummary(*row) for row in self._rows(query)]
        escaped = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        query = (
            "SELECT id, title, changed_s FROM chats WHERE title LIKE :text ESCAPE '\\' OR EXISTS (SELECT 1 FROM "
            "messages WHERE chat_id = chats.id AND text LIKE :text ESCAPE '\\') ORDER BY changed_s DESC, id DESC"
        )
        return [ChatSummary(*row) for row in self._rows(query, {"text": f"%{escaped}%"})]

    def load(self, chat_id: int) -> Conversation | None:
        """One chat with all its messages; None if there is no such chat."""
        head = self._rows("SELECT title, sent_from_id FROM chats WHERE id = ?", (chat_id,))
        if not head:
            return None
        title, sent_from_id = head[0]
        rows = self._rows(
            "SELECT id, role, text, created_s, answer_end, stats FROM messages WHERE chat_id = ? ORDER BY id",
            (chat_id,),
        )
        return Conversation(chat_id, title, tuple(_message(row) for row in rows), sent_from_id)

    def start_chat(self, text: str) -> Conversation:
        """Begin a chat with the user's first message; its title is the first eight words."""
        now = self._clock()
        title = title_of(text)
        with self._change() as db:
            added = db.execute("INSERT INTO chats (title, created_s, changed_s) VALUES (?, ?, ?)", (title, now, now))
            chat_id = _new_id(added)
            message = self._add(db, chat_id, Role.USER, text, None)
            db.execute("DELETE FROM drafts WHERE chat_id = ?", (_NEW_CHAT,))
        return Conversation(chat_id, title, (message,))

    def rename(self, chat_id: int, title: str) -> None:
        with self._change() as db:
            db.execute("UPDATE chats SET title = ? WHERE id = ?", (title, chat_id))

    def delete(self, chat_id: int) -> None:
        """Remove a chat, its messages and its draft for good."""
        with self._change() as db:
            db.execute("DELETE FROM drafts WHERE chat_id = ?", (chat_id,))
            db.execute("DELETE FROM chats WHERE id = ?", (chat_id,))

    def send_from(self, chat_id: int, message_id: int) -> None:
        """From now on leave out of requests what came before this message."""
        with self._change() as db:
            db.execute("UPDATE chats SET sent_from_id = ? WHERE id = ?", (message_id, chat_id))

    # messages

    def add_user_message(self, chat_id: int, text: str) -> Message:
        """Keep what the user sent, and clear the draft it came from."""
        with self._change() as db:
            message = self._add(db, chat_id, Role.USER, text, None)
            db.execute("DELETE FROM drafts WHERE chat_id = ?", (chat_id,))
        return message

    def begin_answer(self, chat_id: int) -> Message:
        """An empty answer that is being written; what `save_answer` gets is there after a crash."""
        with self._change() as db:
            return self._add(db, chat_id, Role.ASSISTANT, "", AnswerEnd.WRITING)

    def save_answer(self, message_id: int, text: str) -> None:
        """The answer so far."""
        with self._change() as db:
            db.execute("UPDATE messages SET text = ? WHERE id = ?", (text, message_id))

    def end_answer(self, message_id: int, text: str, end: AnswerEnd, stats: AnswerStats | None) -> None:
        """The answer as it stays."""
        stored = None if stats is None else stats.model_dump_json()
        with self._change() as db:
            db.execute(
                "UPDATE messages SET text = ?, answer_end = ?, stats = ? WHERE id = ?",
                (text, end.value, stored, message_id),
            )

    def remove_message(self, message_id: int) -> None:
        """Take back a message: an answer without a word, or one of the user's that was not sent yet."""
        with self._change() as db:
            db.execute("DELETE FROM messages WHERE id = ?", (message_id,))

    # drafts

    def save_draft(self, chat_id: int | None, text: str) -> None:
        """Keep what is typed and not sent; None is the chat that has not begun."""
        key = _NEW_CHAT if chat_id is None else chat_id
        with self._change() as db:
            if text:
                db.execute("INSERT OR REPLACE INTO drafts (chat_id, text) VALUES (?, ?)", (key, text))
            else:
                db.execute("DELETE FROM drafts WHERE chat_id = ?", (key,))

    def draft(self, chat_id: int | None) -> str:
        """What was typed and not sent; "" if nothing."""
        key = _NEW_CHAT if chat_id is None else chat_id
        rows = self._rows("SELECT text FROM drafts WHERE chat_id = ?", (key,))
        return str(rows[0][0]) if rows else ""

    # inside

    def _add(self, db: sqlite3.Connection, chat_id: int, role: Role, text: str, end: AnswerEnd | None) -> Message:
        now = self._clock()
        added = db.execute(
            "INSERT INTO messages (chat_id, role, text, answer_end, created_s) VALUES (?, ?, ?, ?, ?)",
            (chat_id, role.value, text, None if end is None else end.value, now),
        )
        db.execute("UPDATE chats SET changed_s = ? WHERE id = ?", (now, chat_id))
        return Message(_new_id(added), role, text, now, end)

    def _rows(self, query: str, values: tuple[object, ...] | dict[str, object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as cause:
            raise translated(cause, self.file) from cause

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk afterwards, or nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
        except sqlite3.Error as cause:
            raise translated(cause, self.file) from cause


def _new_id(added: sqlite3.Cursor) -> int:
    assert added.lastrowid is not None  # an INSERT that did not raise has one
    return added.lastrowid


def _message(row: tuple[Any, ...]) -> Message:
    """A row as a value. End and stats are decoration: an unreadable one is dropped, the text stays."""
    message_id, role, text, created_s, end, stats = row
    try:
        return Message(
            message_id,
            Role(role),
            text,
            created_s,
            None if end is None else AnswerEnd(end),
            None if stats is None else AnswerStats.model_validate_json(stats),
        )
    except ValueError:  # pydantic's ValidationError is one
        logger.warning("message %d: end %r or stats %r cannot be read", message_id, end, stats)
        return Message(message_id, Role(role), text, created_s)
