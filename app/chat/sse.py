"""Server-sent events out of bytes, wherever the network cuts them."""

import logging
import re
from typing import Final

logger = logging.getLogger(__name__)

# Two line ends in a row. The atomic group keeps one \r\n from being read as two line ends.
_BLANK_LINE: Final = re.compile(rb"(?>\r\n|\r|\n){2}")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_LONGEST_MARK: Final = 4  # \r\n\r\n


class SseParser:
    """Collects bytes and gives back the `data` of each finished event. Comments and other fields are dropped.

    Bytes are decoded event by event, so a character cut in two by the network is whole again; bytes that are not
    UTF-8 even then become U+FFFD and are logged.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[str]:
        """Take what arrived; the data of the events that are complete now, in order."""
        self._bytes += data
        found: list[str] = []
        while mark := _BLANK_LINE.search(self._bytes, max(0, self._searched - _LONGEST_MARK)):
            event = bytes(self._bytes[: mark.start()])
            del self._bytes[: mark.end()]
            self._searched = 0
            if (payload := _payload(event)) is not None:
                found.append(payload)
        self._searched = len(self._bytes)
        return found

    @property
    def waiting_bytes(self) -> int:
        """Bytes of an event that is not complete."""
        return len(self._bytes)


def _payload(event: bytes) -> str | None:
    try:
        text = event.decode()
    except UnicodeDecodeError as cause:
        logger.warning("an event of the engine is not UTF-8: %s", cause)
        text = event.decode(errors="replace")
    lines = [line[5:].removeprefix(" ") for line in _LINE_END.split(text) if line.startswith("data:")]
    return "\n".join(lines) if lines else None
