"""Bodies of requests, read within limits: in size, in parts, in time, and all of them together.

A body of commas is the worst: each of its parts becomes objects of 100 B and more, and validating eight million of them
stops the engine for minutes and takes gigabytes.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from engine.serve.openai import ApiError

MOST_BYTES = 32 << 20  # a million tokens of text take 4 to 6 MB, written as \\u escapes three times as much
MOST_PARTS = 100_000  # values in lists and objects: some 30,000 messages, read in half a second
MOST_HELD_BYTES = 4 * MOST_BYTES  # of all requests that are read or made into prompts now
WITHIN_S = 120.0
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class Bodies:
    """What requests have sent and nobody has finished with."""

    def __init__(self) -> None:
        self._held = 0

    @asynccontextmanager
    async def body_of(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body; it counts until the block is left.

        Raises:
            ApiError: 413, larger or of more parts than any conversation; 408, it does not come to an end; 503, too many
                large ones are here now.
        """
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(WITHIN_S):
                async for part in request.stream():
                    size += len(part)
                    self._held += len(part)
                    if size > MOST_BYTES:
                        raise ApiError(413, f"The request is longer than {MOST_BYTES:,} B.", code="too_large")
                    if self._held > MOST_HELD_BYTES:
                        raise ApiError(503, "Too many large requests are being read.", code="busy")
                    parts.append(part)
            body = b"".join(parts)
            parts.clear()
            check_parts(body)
            yield body
        except TimeoutError as cause:
            words = f"The request was not complete after {WITHIN_S:g} s."
            raise ApiError(408, words, code="too_slow") from cause
        finally:
            self._held -= size


def check_parts(body: bytes) -> None:
    """Refuse a JSON text of too many values before anything is made of it.

    Raises:
        ApiError: 413.
    """
    if _separators(body, 0, len(body)) > MOST_PARTS and count_parts(body, MOST_PARTS) > MOST_PARTS:
        raise ApiError(413, f"The request has more than {MOST_PARTS:,} parts.", code="too_large")


def count_parts(body: bytes, most: int) -> int:
    """Commas, brackets and braces outside of texts; not counted any further where there are more than `most`."""
    count = at = 0
    for number, text in enumerate(_TEXTS.finditer(body)):
        count = max(count + _separators(body, at, text.start()), number // 2)  # a text comes with a sign, or with two
        at = text.end()
        if count > most:
            return count
    return count + _separators(body, at, len(body))


def _separators(text: bytes, start: int, end: int) -> int:
    return sum(text.count(sign, start, end) for sign in (b",", b"[", b"{"))
