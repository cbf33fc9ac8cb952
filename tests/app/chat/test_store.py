"""The chat store keeps every word, refuses what it cannot read, and deletes nothing by itself."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from app.chat.chat_file import SCHEMA_VERSION
from app.chat.conversation import AnswerEnd, AnswerStats, Role
from app.chat.errors import ChatStoreBusyError, ChatStoreError, DamagedChatStoreError, NewerChatStoreError
from app.chat.store import ChatStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "profile" / "chats.sqlite"


def test_a_chat_is_read_back_as_it_was_written(file: Path) -> None:
    store = ChatStore.open(file, clock=lambda: 1000.5)
    chat = store.start_chat("What is pinned\nmemory for, and who reads it?")
    answer = store.begin_answer(chat.id)
    stats = AnswerStats(prompt_tokens=12, answer_tokens=3, ttft_s=0.5, decode_tok_s=9.4)
    store.end_answer(answer.id, "The **GPU** — ok 🙂", AnswerEnd.NORMAL, stats)
    store.close()

    reopened = ChatStore.open(file)
    loaded = reopened.load(chat.id)
    reopened.close()
    assert loaded is not None
    assert loaded.title == "What is pinned memory for, and who reads"
    assert [m.role for m in loaded.messages] == [Role.USER, Role.ASSISTANT]
    assert loaded.messages[0].text == "What is pinned\nmemory for, and who reads it?"
    assert loaded.messages[1].text == "The **GPU** — ok 🙂"
    assert loaded.messages[1].end is AnswerEnd.NORMAL
    assert loaded.messages[1].stats == stats
    assert loaded.messages[1].created_s == 1000.5


def test_a_killed_process_leaves_the_part_of_the_answer_that_was_saved(file: Path) -> None:
    script = f"""
import os, pathlib
from app.chat.store import ChatStore
store = ChatStore.open(pathlib.Path({str(file)!r}))
chat = store.start_chat("Tell me a story")
answer = store.begin_answer(chat.id)
store.save_answer(answer.id, "Once upon")
store.begin_answer(store.start_chat("Second").id)
store.save_draft(chat.id, "and then I typed")
os._exit(1)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 1
    store = ChatStore.open(file)
    second, first = store.chats()
    loaded = store.load(first.id)
    assert loaded is not None
    assert (loaded.messages[1].text, loaded.messages[1].end) == ("Once upon", AnswerEnd.INTERRUPTED)
    empty = store.load(second.id)
    assert empty is not None
    assert [m.text for m in empty.messages] == ["Second"], "an answer without a word is not kept"
    assert store.draft(first.id) == "and then I typed"
    store.close()


def test_a_second_splitpin_is_refused_while_the_file_is_open(file: Path) -> None:
    store = ChatStore.open(file)
    with pytest.raises(ChatStoreBusyError):
        ChatStore.open(file)
    with pytest.raises(ChatStoreBusyError):
        ChatStore.open_or_set_aside(file)
    store.start_chat("still works")
    store.close()
    again = ChatStore.open(file)
    assert [chat.title for chat in again.chats()] == ["still works"]
    again.close()


@pytest.mark.parametrize(
    "content", [b"these are not chats at all, just text\n" * 40, b"SQLite format 3\0" + b"\xff" * 4096]
)
def test_a_file_that_is_no_database_is_refused_unchanged_and_can_be_set_aside(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(DamagedChatStoreError) as refused:
        ChatStore.open(file)
    assert str(file) in refused.value.sentence
    assert file.read_bytes() == content

    store, said = ChatStore.open_or_set_aside(file)
    assert said is not None
    kept = Path(str(said.numbers["file"]))
    assert kept.read_bytes() == content
    assert kept.name in said.sentence
    assert store.chats() == []
    store.close()


def test_a_database_of_another_program_is_not_touched(file: Path) -> None:
    file.parent.mkdir()
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.commit()
    other.close()
    before = file.read_bytes()
    with pytest.raises(DamagedChatStoreError, match="not a file of chats"):
        ChatStore.open(file)
    assert file.read_bytes() == before


def test_a_page_overwritten_in_the_middle_is_found_at_opening(file: Path) -> None:
    store = ChatStore.open(file)
    for number in range(200):
        store.start_chat(f"question {number} " + "word " * 100)
    store.close()
    content = bytearray(file.read_bytes())
    content[4096 * 5 : 4096 * 7] = b"\xa5" * 8192
    file.write_bytes(content)
    with pytest.raises(DamagedChatStoreError):
        ChatStore.open(file)


def test_a_newer_file_is_named_with_both_versions_and_kept_under_another_name(file: Path) -> None:
    store = ChatStore.open(file)
    store.start_chat("from the future")
    store.close()
    newer = sqlite3.connect(file)
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer.close()

    with pytest.raises(NewerChatStoreError) as refused:
        ChatStore.open(file)
    assert refused.value.numbers["found_version"] == SCHEMA_VERSION + 1
    fresh, said = ChatStore.open_or_set_aside(file)
    assert said is not None
    assert fresh.chats() == []
    fresh.close()
    kept = sqlite3.connect(str(said.numbers["file"]))
    assert kept.execute("SELECT title FROM chats").fetchall() == [("from the future",)]
    kept.close()


def test_two_files_set_aside_in_one_second_do_not_overwrite_each_other(file: Path) -> None:
    file.parent.mkdir()
    for content in (b"first" * 100, b"second" * 100):
        file.write_bytes(content)
        store, _ = ChatStore.open_or_set_aside(file)
        store.close()
        file.unlink()
        for beside in file.parent.glob("chats.sqlite-*"):
            beside.unlink()
    kept = {path.read_bytes() for path in file.parent.glob("chats.damaged-*.sqlite")}
    assert kept == {b"first" * 100, b"second" * 100}


def test_a_folder_that_cannot_be_made_is_said_not_traced(tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("a file where the folder should be")
    with pytest.raises(ChatStoreError) as refused:
        ChatStore.open(tmp_path / "profile" / "chats.sqlite")
    assert "profile" in refused.value.fix


def test_chats_are_listed_last_changed_first_and_found_by_any_of_their_words() -> None:
    now = iter(range(1, 100))
    store = ChatStore.in_memory(clock=lambda: float(next(now)))
    first = store.start_chat("Regex for shards")
    second = store.start_chat("Event ordering")
    store.add_user_message(first.id, "what about 100% of model_00014?")
    assert [chat.id for chat in store.chats()] == [first.id, second.id]
    assert [chat.id for chat in store.chats("EVENT")] == [second.id]
    assert [chat.id for chat in store.chats("100%")] == [first.id]
    assert [chat.id for chat in store.chats("model_0")] == [first.id]
    assert store.chats("model-0") == []
    assert store.chats("%zzz") == []
    store.close()


def test_a_draft_is_kept_until_it_is_sent() -> None:
    store = ChatStore.in_memory()
    store.save_draft(None, "half a tho")
    assert store.draft(None) == "half a tho"
    chat = store.start_chat("half a thought")
    assert store.draft(None) == ""
    store.save_draft(chat.id, "more")
    assert store.draft(chat.id) == "more"
    store.add_user_message(chat.id, "more text")
    assert store.draft(chat.id) == ""
    store.close()


def test_a_deleted_chat_takes_its_messages_and_draft_along() -> None:
    store = ChatStore.in_memory()
    chat = store.start_chat("gone soon")
    store.save_draft(chat.id, "typed")
    store.delete(chat.id)
    assert store.load(chat.id) is None
    assert store.chats("gone") == []
    assert store.draft(chat.id) == ""
    assert store.start_chat("new").id != chat.id, "an id is never used twice"
    store.close()


def test_unreadable_decoration_does_not_cost_the_text(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ChatStore.open(file)
    chat = store.start_chat("hello")
    answer = store.begin_answer(chat.id)
    store.end_answer(answer.id, "the answer", AnswerEnd.NORMAL, None)
    store.close()
    direct = sqlite3.connect(file)
    direct.execute("UPDATE messages SET stats = '{broken' WHERE id = ?", (answer.id,))
    direct.commit()
    direct.close()
    reopened = ChatStore.open(file)
    loaded = reopened.load(chat.id)
    reopened.close()
    assert loaded is not None
    assert (loaded.messages[1].text, loaded.messages[1].stats) == ("the answer", None)
    assert "cannot be read" in caplog.text
