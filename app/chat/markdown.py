"""Markdown into top-level blocks, while it is still being written. No HTML is recognised: it stays text.

A block is final when a later one has begun on a complete line: CommonMark never opens a closed block again, but an
unfinished line may still turn into something else ("***" is a rule, "***bold***" is a paragraph that goes on).
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

LINK_SCHEMES: Final = frozenset({"http", "https", "mailto"})
_LANGUAGE_CHARACTERS: Final = 32

_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph, heading, list, quote, table or rule: the tokens of one top-level block."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A fenced or indented block of code. `language` is the first word after the fence, "" if none."""

    language: str
    code: str


Block = Prose | Code


@dataclass(frozen=True, slots=True)
class Advance:
    """What a piece of text changed: blocks that are final now, and those that may still change.

    `from_start` is True when everything shown before is void and `final` holds the whole text.
    """

    final: tuple[Block, ...]
    open: tuple[Block, ...] = ()
    from_start: bool = False


class BlockStream:
    """Cuts a growing text into blocks, parsing only from the last final block on."""

    def __init__(self) -> None:
        self._whole: list[str] = []
        self._tail = ""
        self._parsed_lines_end = 0  # up to here the tail was searched for final blocks
        self._ends_in_cr = False
        self._definitions = False

    @property
    def source(self) -> str:
        """All text so far, with line ends as \\n."""
        return "".join(self._whole)

    def feed(self, piece: str) -> None:
        """Take a piece of text; cheap, nothing is parsed yet."""
        if self._ends_in_cr and piece.startswith("\n"):
            piece = piece[1:]
            self._ends_in_cr = False
            if not piece:
                return
        self._ends_in_cr = piece.endswith("\r")
        piece = piece.replace("\r\n", "\n").replace("\r", "\n")
        self._whole.append(piece)
        self._tail += piece

    def advance(self) -> Advance:
        """Parse what is new."""
        final: tuple[Block, ...] = ()
        lines_end = self._tail.rfind("\n") + 1
        if lines_end > self._parsed_lines_end:
            blocks, starts = self._parse(self._tail[:lines_end])
            final = blocks[:-1]
            if final:
                self._tail = self._tail[_offset(self._tail, starts[-1]) :]
            self._parsed_lines_end = self._tail.rfind("\n") + 1
        unfinished, _ = self._parse(self._tail)
        return Advance(final, unfinished)

    def finish(self) -> Advance:
        """No more text will come: every block is final."""
        final, _ = self._parse(self._tail)
        if self._definitions:
            # A definition such as "[1]: https://…" changes links before it, also in blocks that were final.
            final, _ = self._parse(self.source)
        self._tail = ""
        self._parsed_lines_end = 0
        return Advance(final, from_start=self._definitions)

    def _parse(self, text: str) -> tuple[tuple[Block, ...], list[int]]:
        """Blocks of a text and the lines they start on."""
        env: dict[str, object] = {}
        tokens = _MARKDOWN.parse(text, env)
        self._definitions = self._definitions or bool(env.get("references"))
        blocks: list[Block] = []
        starts: list[int] = []
        first = 0
        for index, token in enumerate(tokens):
            if token.level == 0 and token.nesting >= 0:
                first = index
            if token.level == 0 and token.nesting <= 0:
                blocks.append(_block(tokens[first : index + 1]))
                lines = tokens[first].map
                assert lines is not None  # markdown-it maps every top-level token
                starts.append(lines[0])
        return tuple(blocks), starts


def link_target(href: str) -> str | None:
    """The address of a link that may be opened; None for every scheme but http, https and mailto."""
    try:
        scheme = urlsplit(href).scheme
    except ValueError:
        return None
    return href if scheme.lower() in LINK_SCHEMES else None


def _block(tokens: list[Token]) -> Block:
    token = tokens[0]
    if token.type in ("fence", "code_block"):
        words = token.info.split()
        return Code(words[0][:_LANGUAGE_CHARACTERS] if words else "", token.content.rstrip("\n"))
    return Prose(tuple(tokens))


def _offset(text: str, line: int) -> int:
    """Where a line starts."""
    offset = 0
    for _ in range(line):
        offset = text.index("\n", offset) + 1
    return offset
