"""The SQLite file under the chat store: opening, checking, versions, and SQLite's errors in our words."""

import sqlite3
import time
from pathlib import Path
from typing import Final

from app.chat.errors import ChatStoreBusyError, ChatStoreError, DamagedChatStoreError, NewerChatStoreError

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x53506348  # "SPcH" in the header of the file
_BUSY_WAIT_S: Final = 1.0

_SCHEMA: Final = f"""
BEGIN EXCLUSIVE;
CREATE TABLE chats (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    created_s REAL NOT NULL,
    changed_s REAL NOT NULL,
    sent_from_id INTEGER
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chat_id INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    text TEXT NOT NULL,
    answer_end TEXT,
    stats TEXT,
    created_s REAL NOT NULL
);
CREATE INDEX messages_of_chat ON messages (chat_id, id);
CREATE TABLE drafts (chat_id INTEGER PRIMARY KEY, text TEXT NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


def open_database(file: Path | None) -> sqlite3.Connection:
    """A connection to the file of chats, created if missing; None is a database in memory.

    The file stays locked until the connection is closed. A file that cannot be used is not changed.

    Raises:
        ChatStoreBusyError: another process has it open.
        NewerChatStoreError: its `user_version` is above ours.
        DamagedChatStoreError: not SQLite, another program's file, or a failed check.
        ChatStoreError: the folder or the disk refuses.
    """
    named = file or Path(":memory:")
    connection: sqlite3.Connection | None = None
    try:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(named, timeout=_BUSY_WAIT_S, isolation_level=None)
        _prepare(connection, named)
    except (sqlite3.Error, OSError) as cause:
        if connection is not None:
            connection.close()
        raise translated(cause, named) from cause
    except ChatStoreError:
        if connection is not None:
            connection.close()
        raise
    return connection


def set_aside(file: Path, reason: ChatStoreError) -> Path:
    """Rename the file, and what SQLite keeps beside it, so that a new one can be begun. Returns the new name.

    Raises:
        ChatStoreError: the file could not be renamed.
    """
    word = "newer" if isinstance(reason, NewerChatStoreError) else "damaged"
    stem = f"{file.stem}.{word}-{time.strftime('%Y%m%d-%H%M%S')}"
    kept = file.with_name(f"{stem}{file.suffix}")
    number = 1
    while kept.exists():
        number += 1
        kept = file.with_name(f"{stem}-{number}{file.suffix}")
    try:
        for tail in ("-wal", "-shm"):
            beside = file.with_name(file.name + tail)
            if beside.exists():
                beside.replace(kept.with_name(kept.name + tail))
        file.replace(kept)
    except OSError as cause:
        raise translated(cause, file) from cause
    return kept


def translated(cause: Exception, file: Path) -> ChatStoreError:
    """SQLite's or the system's refusal as an error for people."""
    code = getattr(cause, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ChatStoreBusyError(file)
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DamagedChatStoreError(file, str(cause))
    if primary == sqlite3.SQLITE_FULL:
        fix = f"Make room on the drive of {file.parent}."
    else:
        fix = f"Check that {file.parent} exists and can be written."
    return ChatStoreError(f"The chats in {file} cannot be read or written: {cause}.", fix, file=str(file))


def _prepare(db: sqlite3.Connection, file: Path) -> None:
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("PRAGMA foreign_keys = ON")
    version, application = _pragma(db, "user_version"), _pragma(db, "application_id")
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(_SCHEMA)
        return
    if application != APPLICATION_ID:
        raise DamagedChatStoreError(file, "it is not a file of chats")
    if version > SCHEMA_VERSION:
        raise NewerChatStoreError(file, found_version=version, known_version=SCHEMA_VERSION)
    findings = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if findings != "ok":
        raise DamagedChatStoreError(file, str(findings))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(
        "PRAGMA synchronous = NORMAL"
    )  # in WAL mode a killed process loses nothing, a power cut at most a second
    # A crash left these behind: keep what was written, drop what has no word.
    db.execute("BEGIN EXCLUSIVE")
    db.execute("DELETE FROM messages WHERE answer_end = 'writing' AND text = ''")
    db.execute("UPDATE messages SET answer_end = 'interrupted' WHERE answer_end = 'writing'")
    db.execute("COMMIT")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
