"""Which parts of code are keywords, strings, comments: by Pygments, as plain spans."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound

SyntaxKind = Literal["keyword", "name", "builtin", "string", "number", "comment", "operator", "error"]

_KINDS: Final[dict[_TokenType, SyntaxKind]] = {
    Token.Keyword: "keyword",
    Token.Name.Tag: "keyword",
    Token.Name.Function: "name",
    Token.Name.Class: "name",
    Token.Name.Builtin: "builtin",
    Token.Name.Attribute: "builtin",
    Token.Name.Decorator: "builtin",
    Token.Literal.String: "string",
    Token.Literal.Number: "number",
    Token.Comment: "comment",
    Token.Operator: "operator",
    Token.Generic.Deleted: "error",
    Token.Generic.Inserted: "name",
    Token.Generic.Heading: "keyword",
}


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a line. Start and length count UTF-16 units, as Qt does."""

    start: int
    length: int
    kind: SyntaxKind


Line = tuple[Span, ...]


def highlighted(code: str, language: str) -> list[Line]:
    """The spans of each line; none for a language Pygments does not know."""
    lexer = _lexer(language.lower())
    if lexer is None:
        return [() for _ in code.split("\n")]
    lines: list[list[Span]] = [[]]
    column = 0
    for token, value in lexer.get_tokens(code):
        kind = _kind(token)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
                column = 0
            length = len(part) if part.isascii() else len(part.encode("utf-16-le")) // 2
            if kind is not None and length:
                lines[-1].append(Span(column, length, kind))
            column += length
    return [tuple(line) for line in lines]


@lru_cache(maxsize=256)
def _kind(token: _TokenType) -> SyntaxKind | None:
    kind: _TokenType | None = token
    while kind is not None:
        if kind in _KINDS:
            return _KINDS[kind]
        kind = kind.parent
    return None


@lru_cache(maxsize=32)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False) if language else None
    except ClassNotFound:
        return None
