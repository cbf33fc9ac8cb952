"""What can go wrong with the file of chats."""

from pathlib import Path

from engine.contract.errors import SplitpinError


class ChatStoreError(SplitpinError):
    """The chats cannot be read or written."""

    kind = "chat_store"


class ChatStoreBusyError(ChatStoreError):
    """Another Splitpin has the file open."""

    kind = "chat_store_busy"

    def __init__(self, file: Path) -> None:
        super().__init__(
            f"Another Splitpin has the chats in {file} open.",
            "Close the other Splitpin, then open this one again.",
            file=str(file),
        )


class DamagedChatStoreError(ChatStoreError):
    """The file is not a file of chats, or parts of it are unreadable."""

    kind = "chat_store_damaged"

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(
            f"The chats in {file} cannot be read: {reason}.",
            "Keep the file; a copy from a backup can be put in its place.",
            file=str(file),
        )


class NewerChatStoreError(ChatStoreError):
    """A newer Splitpin wrote the file."""

    kind = "chat_store_newer"

    def __init__(self, file: Path, *, found_version: int, known_version: int) -> None:
        super().__init__(
            f"The chats in {file} were written by a newer Splitpin: "
            f"file version {found_version}, this one reads up to {known_version}.",
            "Install the newer Splitpin to read them.",
            file=str(file),
            found_version=found_version,
            known_version=known_version,
        )


class ChatExportError(SplitpinError):
    """A chat could not be written into a file of its own."""

    kind = "chat_export"

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(
            f"The chat was not saved as {file}: {reason}.",
            "Choose another folder, or make room on this drive.",
            file=str(file),
        )


class ChatStoreSetAsideError(ChatStoreError):
    """A file that could not be opened was renamed and a new one was begun; `reason` says why."""

    kind = "chat_store_set_aside"

    def __init__(self, reason: ChatStoreError, kept: Path) -> None:
        super().__init__(
            f"{reason.sentence} It was kept as {kept.name}, and a new file was begun.",
            reason.fix,
            file=str(kept),
            reason=reason.kind,
        )
