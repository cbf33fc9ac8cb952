"""A chat as a Markdown document that other programs can open."""

import re
from pathlib import Path
from typing import Final

from app.chat.conversation import Conversation, Message, Role
from app.chat.errors import ChatExportError
from app.chat.phrases import stats_line

_LONGEST_STEM: Final = 80
_FORBIDDEN: Final = re.compile(r'[<>:"/\\|?*\x00-\x1f]+')  # by Windows, in names of files
_DEVICES: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # no names of files there


def as_markdown(chat: Conversation) -> str:
    """The title, then every message under who wrote it; below an answer its numbers, as the window shows them."""
    parts = [f"# {' '.join(chat.title.split())}"]
    for message in chat.messages:
        parts += [f"## {_writer(message)}", message.text.strip()]
        if message.role is Role.ASSISTANT and (line := stats_line(message.stats, message.end)):
            parts.append(f"*{line}*")
    return "\n\n".join(part for part in parts if part) + "\n"


def file_name(title: str) -> str:
    """A name for the document that Windows and Linux take."""
    stem = _FORBIDDEN.sub(" ", title)
    stem = " ".join(stem.split())[:_LONGEST_STEM].strip(" .…")
    return f"{'Chat' if not stem or _DEVICES.fullmatch(stem) else stem}.md"


def write_markdown(chat: Conversation, file: Path) -> None:
    """Write the document; a file of that name is replaced.

    Raises:
        ChatExportError: the disk refuses.
    """
    try:
        file.write_text(as_markdown(chat), "utf-8", newline="\n")
    except OSError as cause:
        raise ChatExportError(file, cause.strerror or str(cause)) from cause


def _writer(message: Message) -> str:
    if message.role is Role.USER:
        return "You"
    return (message.stats.model if message.stats is not None else None) or "The model"
