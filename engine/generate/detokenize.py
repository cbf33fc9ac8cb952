"""Token ids into text, piece by piece. A character that spans tokens waits for its last byte.

Decoding each token alone turns a split character into U+FFFD, and decoding everything again for each token is
quadratic. Byte-level BPE and byte-fallback vocabularies know the bytes of every token, so those are fed to an
incremental UTF-8 decoder; other tokenizers are decoded over a short window and compared.
"""

import codecs
import json
import re
from collections.abc import Iterable
from typing import Any, Protocol

from typing_extensions import override

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MOST_HELD_TOKENS = 32  # a character has 4 bytes; a model that goes on without one makes none
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Utf8Stream:
    """Bytes in, text out. Bytes that can be no UTF-8 become U+FFFD; incomplete ones are held back."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, piece: bytes) -> str:
        """The text that is complete now."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """One U+FFFD if a character was never completed."""
        return self._decoder.decode(b"", final=True)


class TextStream(Protocol):
    """Token ids of one answer in, text out."""

    def feed(self, token_id: int) -> str:
        """The text that is complete now; often empty."""
        ...

    def flush(self) -> str:
        """What was held back; the answer has ended."""
        ...


class ByteStream(TextStream):
    """For vocabularies whose tokens are bytes."""

    def __init__(self, vocabulary: "ByteVocabulary") -> None:
        self._vocabulary = vocabulary
        self._utf8 = Utf8Stream()
        self._spaces_to_drop = vocabulary.leading_spaces

    @override
    def feed(self, token_id: int) -> str:
        return self._without_lead(self._utf8.feed(self._vocabulary.token_bytes(token_id)))

    @override
    def flush(self) -> str:
        return self._without_lead(self._utf8.flush())

    def _without_lead(self, text: str) -> str:
        """Drop the spaces that the vocabulary puts before the first word."""
        if not text:
            return text
        drop = min(len(text) - len(text.lstrip(" ")), self._spaces_to_drop)
        self._spaces_to_drop = 0
        return text[drop:]


class WindowStream(TextStream):
    """For any tokenizer: decode a few tokens with and without the new one, and give out the difference."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0  # the window begins here, so that joins between tokens are decoded as in the whole text
        self._given = 0  # text of the tokens before this one has been given out

    @override
    def feed(self, token_id: int) -> str:
        self._ids.append(token_id)
        text = self._decode(self._ids[self._start :])
        old = self._decode(self._ids[self._start : self._given])
        nothing_whole = text.endswith(REPLACEMENT) or len(text) <= len(old)
        if nothing_whole and len(self._ids) - self._given < MOST_HELD_TOKENS:
            return ""
        self._start, self._given = self._given, len(self._ids)
        return text[len(old) :]

    @override
    def flush(self) -> str:
        old = self._decode(self._ids[self._start : self._given])
        text = self._decode(self._ids[self._start :])
        self._start = self._given = len(self._ids)
        return text[len(old) :]

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


class ByteVocabulary:
    """Bytes of every token, for the two kinds of vocabularies that have them."""

    def __init__(self, tokenizer: Any, *, byte_level: bool, leading_spaces: int) -> None:
        self._tokenizer = tokenizer
        self._byte_level = byte_level
        self._special = frozenset(tokenizer.all_special_ids)
        self._added = {token_id: str(token) for token_id, token in tokenizer.added_tokens_decoder.items()}
        self._known: dict[int, bytes] = {}
        self.leading_spaces = leading_spaces

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of one token; none for special tokens and for ids the vocabulary does not have."""
        if token_id not in self._known:
            self._known[token_id] = self._find(token_id)
        return self._known[token_id]

    def _find(self, token_id: int) -> bytes:
        if token_id in self._special:
            return b""
        if token_id in self._added:
            return self._added[token_id].encode()
        token: str | None = self._tokenizer.convert_ids_to_tokens(token_id)
        if token is None:
            return b""
        if self._byte_level:
            if all(letter in BYTE_OF_LETTER for letter in token):
                return bytes(BYTE_OF_LETTER[letter] for letter in token)
            return token.encode()
        if match := _BYTE_TOKEN.fullmatch(token):
            return bytes([int(match[1], 16)])
        return token.replace("▁", " ").encode()


class Detokenizer:
    """Makes a text stream for each answer of one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = _byte_vocabulary(tokenizer)

    def stream(self) -> TextStream:
        """A stream that has seen no token yet."""
        return WindowStream(self._tokenizer) if self._vocabulary is None else ByteStream(self._vocabulary)


def _byte_vocabulary(tokenizer: Any) -> ByteVocabulary | None:
    """Read the tokenizer's own description of how it decodes; None if its tokens are not bytes."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None:
        return None
    steps = list(_steps(json.loads(decoder.__getstate__())))
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return ByteVocabulary(tokenizer, byte_level=True, leading_spaces=0)
    plain = {"Replace", "ByteFallback", "Fuse", "Strip"}
    replaces = [(step["pattern"].get("String"), step["content"]) for step in steps if step["type"] == "Replace"]
    if set(kinds) <= plain and "ByteFallback" in kinds and replaces == [("▁", " ")]:
        strips = [step for step in steps if step["type"] == "Strip"]
        if all(step["content"] == " " and step["stop"] == 0 for step in strips):
            return ByteVocabulary(tokenizer, byte_level=False, leading_spaces=sum(step["start"] for step in strips))
    return None


def _steps(decoder: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if decoder["type"] != "Sequence":
        yield decoder
        return
    for step in decoder["decoders"]:
        yield from _steps(step)


def _letters() -> dict[str, int]:
    """The letter that stands for each byte in byte-level BPE: printable bytes for themselves, others from U+0100 on.

    Source: bytes_to_unicode in the GPT-2 tokenizer.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


BYTE_OF_LETTER = _letters()
