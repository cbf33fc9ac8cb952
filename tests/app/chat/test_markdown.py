"""Markdown in pieces is Markdown at once; HTML and odd links are text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it.token import Token

from app.chat.highlight import Span, highlighted
from app.chat.markdown import Advance, Block, BlockStream, Code, Prose, link_target

# Everything that opens, closes or continues a block, whole and half.
PARTS = [
    *("para", "text **bold** ", "é🙂", "<b>", "[t](u)", "[1]", "[1]: https://x.y"),
    *("***", "---", "- ", "* a", "1. ", "2) x", "# ", "## h", "> ", "=", "===", "+", "-", "_", "*", "#", "!"),
    *("```", "```python", "~~~", "`", "    ", "  ", "\t", "\\"),
    *("| a | b |", "|---|:-:|", "|--", "| 1 | 2 |"),
    *("\n", "\n", "\n", "\n\n", "\r\n", "\r", "\u2028", "\x0b"),
]


def blocks_of(text: str) -> tuple[Block, ...]:
    """All blocks of a whole text."""
    stream = BlockStream()
    stream.feed(text)
    return stream.finish().final


def shape(block: Block) -> object:
    """A block without line numbers, which differ between a text and its tail."""
    if isinstance(block, Code):
        return block
    return [_plain(token) for token in block.tokens]


def _plain(token: Token) -> object:
    children = [_plain(child) for child in token.children or ()]
    return (token.type, token.tag, token.content, token.info, tuple(token.attrs.items()), token.level, children)


def streamed(pieces: list[str]) -> list[object]:
    stream = BlockStream()
    shown: list[Block] = []
    for piece in pieces:
        stream.feed(piece)
        shown += stream.advance().final
    last = stream.finish()
    return [shape(block) for block in ([] if last.from_start else shown) + list(last.final)]


@given(st.lists(st.sampled_from(PARTS), max_size=30))
def test_pieces_of_any_kind_end_in_the_same_blocks_as_the_whole(pieces: list[str]) -> None:
    assert streamed(pieces) == [shape(block) for block in blocks_of("".join(pieces))]


@given(st.lists(st.sampled_from(PARTS), max_size=25))
def test_one_character_at_a_time_ends_in_the_same_blocks_as_the_whole(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert streamed(list(text)) == [shape(block) for block in blocks_of(text)]


def test_only_the_last_block_stays_open() -> None:
    stream = BlockStream()
    stream.feed("first\n\nsecond\n\n```py\nx = 1\n")
    advance = stream.advance()
    assert len(advance.final) == 2
    assert advance.open == (Code("py", "x = 1"),)
    stream.feed("```\n\nthird")
    assert stream.advance().final == (), "'third' may still become anything while its line is not complete"
    stream.feed(" line\n")
    advance = stream.advance()
    assert advance.final == (Code("py", "x = 1"),)
    assert len(advance.open) == 1
    assert stream.source == "first\n\nsecond\n\n```py\nx = 1\n```\n\nthird line\n"


def test_html_is_text() -> None:
    (block,) = blocks_of("<script>alert(1)</script> <img src=x onerror=y>")
    assert isinstance(block, Prose)
    inline = block.tokens[1]
    assert {child.type for child in inline.children or ()} == {"text"}
    assert "".join(child.content for child in inline.children or ()) == inline.content


def test_a_definition_at_the_end_makes_links_before_it_work() -> None:
    stream = BlockStream()
    for piece in ("See [the page][1].\n\n", "Second.\n\n", "[1]: https://example.org\n"):
        stream.feed(piece)
        stream.advance()
    last = stream.finish()
    assert last.from_start
    assert isinstance(last, Advance)
    assert isinstance(last.final[0], Prose)
    kinds = [child.type for child in last.final[0].tokens[1].children or ()]
    assert "link_open" in kinds


@pytest.mark.parametrize("href", ["http://a.b", "https://a.b/c?d=e#f", "HTTPS://A.B", "mailto:a@b.c"])
def test_web_and_mail_links_may_be_opened(href: str) -> None:
    assert link_target(href) == href


@pytest.mark.parametrize(
    "href",
    ["javascript:alert(1)", "file:///etc/passwd", "ms-settings:about", "data:text/html,x", "//host/share", "page.html",
     "C:\\Windows\\notepad.exe", "\\\\host\\share", "http//a.b", "https\u200b://a.b", "http://[broken"],
)  # fmt: skip
def test_every_other_link_is_inert(href: str) -> None:
    assert link_target(href) is None


def test_code_is_marked_in_qt_units_and_unknown_languages_stay_plain() -> None:
    lines = highlighted('x = "🙂"  # note\nreturn', "python")
    assert Span(10, 6, "comment") in lines[0], "the emoji before it counts as two units"
    assert [span.kind for span in lines[1]] == ["keyword"]
    assert highlighted("a\nb", "no-such-language") == [(), ()]
    assert highlighted("", "") == [()]
