"""A chat in a file of its own."""

from pathlib import Path

import pytest

from app.chat.conversation import AnswerEnd, AnswerStats
from app.chat.errors import ChatExportError
from app.chat.export import as_markdown, file_name, write_markdown
from app.chat.store import ChatStore

STATS = AnswerStats(answer_tokens=12, decode_tok_s=9.4, model="MiniMax-M2.5")


@pytest.fixture
def chats() -> ChatStore:
    return ChatStore.in_memory()


def test_a_document_has_the_title_every_message_and_the_numbers(chats: ChatStore) -> None:
    chat = chats.start_chat("Two plus\ntwo?")
    chats.end_answer(chats.begin_answer(chat.id).id, "```python\n2 + 2\n```\n", AnswerEnd.STOPPED_BY_USER, STATS)
    chats.add_user_message(chat.id, "Thanks")
    loaded = chats.load(chat.id)
    assert loaded is not None
    assert as_markdown(loaded) == (
        "# Two plus two?\n\n## You\n\nTwo plus\ntwo?\n\n## MiniMax-M2.5\n\n```python\n2 + 2\n```\n\n"
        "*Stopped by you · 12 tokens · 9.4 tok/s*\n\n## You\n\nThanks\n"
    )
    chats.close()


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Pinned and locked memory", "Pinned and locked memory.md"),
        ('What is "a/b" <c>?', "What is a b c.md"),
        ("Ends with dots...", "Ends with dots.md"),
        ("con", "Chat.md"),
        ("LPT1.txt", "Chat.md"),
        ("???", "Chat.md"),
        ("x" * 200, "x" * 80 + ".md"),
        ("Größe 🙂", "Größe 🙂.md"),
    ],
)
def test_a_title_becomes_a_name_that_windows_takes(title: str, name: str) -> None:
    assert file_name(title) == name


def test_a_disk_that_refuses_is_said_in_words(chats: ChatStore, tmp_path: Path) -> None:
    chat = chats.start_chat("Hello")
    with pytest.raises(ChatExportError, match="was not saved as"):
        write_markdown(chat, tmp_path / "missing" / "a.md")
    chats.close()
