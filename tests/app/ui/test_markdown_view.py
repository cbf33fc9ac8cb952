"""The Markdown view shows the same however the text arrives, shows HTML as text, and opens nothing it should not."""

from collections.abc import Iterator
from typing import cast

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import (
    QDesktopServices,
    QGuiApplication,
    QTextBlock,
    QTextCursor,
    QTextFragment,
    QTextList,
    QTextTable,
)
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.ui.markdown_writer import QUOTE_DEPTH
from app.ui.theme import Theme
from app.ui.widgets.code_block import CodeBlock
from app.ui.widgets.markdown_view import MarkdownView, ProsePart
from tests.app.ui.markdown_samples import EVERYTHING


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    made = Theme(qapp, "light")
    yield made
    made.deleteLater()


def view_of(qtbot: QtBot, theme: Theme, text: str = "") -> MarkdownView:
    view = MarkdownView(theme)
    qtbot.addWidget(view)
    if text:
        view.set_markdown(text)
    return view


def fragments(block: QTextBlock) -> list[QTextFragment]:
    found = []
    walk = block.begin()
    while not walk.atEnd():
        found.append(walk.fragment())
        walk += 1
    return found


def prose(part: ProsePart) -> list[object]:
    """Everything one sees of a part: blocks, lists, runs of text and their looks."""
    seen: list[object] = []
    block = part.document().firstBlock()
    while block.isValid():
        look = block.blockFormat()
        made = cast(QTextList | None, block.textList())  # None outside lists, whatever the stub says
        runs = []
        for fragment in fragments(block):
            style = fragment.charFormat()
            font = style.font()
            brushes = (style.foreground().color().name(), style.background().style().name)
            runs.append((fragment.text(), font.pixelSize(), font.weight(), font.italic(), style.anchorHref(), brushes))
        margins = (look.topMargin(), look.bottomMargin(), look.leftMargin(), look.lineHeight())
        place = None if made is None else (made.format().style(), made.format().indent(), made.itemNumber(block))
        table = cast(QTextTable | None, QTextCursor(block).currentTable())
        shape = None if table is None else (table.rows(), table.columns(), look.alignment())
        seen.append((block.text(), margins, look.headingLevel(), look.property(QUOTE_DEPTH), place, shape, runs))
        block = block.next()
    return seen


def dump(view: MarkdownView) -> list[object]:
    return [
        (part.language, part.code, part.text.toPlainText()) if isinstance(part, CodeBlock) else prose(part)
        for part in view.parts
    ]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_text_in_pieces_shows_the_same_as_at_once(qtbot: QtBot, theme: Theme, size: int) -> None:
    whole = view_of(qtbot, theme, EVERYTHING)
    streamed = view_of(qtbot, theme)
    for start in range(0, len(EVERYTHING), size):
        streamed.feed(EVERYTHING[start : start + size])
        streamed.flush()
    streamed.finish()
    assert dump(streamed) == dump(whole)
    assert [type(part).__name__ for part in whole.parts] == ["ProsePart", "CodeBlock"] * 3
    assert whole.source == EVERYTHING


def test_a_finished_block_is_not_written_again(qtbot: QtBot, theme: Theme) -> None:
    view = view_of(qtbot, theme)
    view.feed("First **done**.\n\n```py\nx = 1\n```\n\nSecond\n\nthird\n")
    view.flush()
    first, code, last = view.parts
    assert isinstance(first, ProsePart)
    assert isinstance(last, ProsePart)
    revision = first.document().revision()
    selected = QTextCursor(last.document().firstBlock())
    selected.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
    last.setTextCursor(selected)
    for _ in range(5):
        view.feed(" and more")
        view.flush()
    assert view.parts == (first, code, last)
    assert first.document().revision() == revision
    assert last.textCursor().selectedText() == "Second", "a selection in a finished block survives"
    assert last.toPlainText().splitlines()[-1] == "third" + " and more" * 5


def test_a_paragraph_that_turns_into_code_leaves_nothing_behind(qtbot: QtBot, theme: Theme) -> None:
    view = view_of(qtbot, theme)
    for piece in ("Intro.\n\n", "`", "`", "`", "py", "thon\n", "x = 1", "\n``", "`", "\n\nEnd."):
        view.feed(piece)
        view.flush()
    view.finish()
    assert dump(view) == dump(view_of(qtbot, theme, "Intro.\n\n```python\nx = 1\n```\n\nEnd."))
    assert [part.isHidden() for part in view.parts] == [False] * 3


@pytest.mark.parametrize(
    "pieces",
    [
        ("*", "*bold** at the start"),
        ("1", ". ", "one"),
        ("|a|\n", "|-", "|\n|b|\n\n", "- x\n\n", "y"),
        ("---\n", "-", "x"),
    ],
)
def test_what_it_was_taken_for_first_leaves_no_trace(qtbot: QtBot, theme: Theme, pieces: tuple[str, ...]) -> None:
    view = view_of(qtbot, theme)
    for piece in pieces:
        view.feed(piece)
        view.flush()
    view.finish()
    assert dump(view) == dump(view_of(qtbot, theme, "".join(pieces)))


def test_html_is_shown_as_it_was_written(qtbot: QtBot, theme: Theme) -> None:
    text = '<b>bold</b> <img src="https://example.org/x.png"> <script>alert(1)</script> &lt;i&gt; <a href="file:///c">x</a>'
    view = view_of(qtbot, theme, text + "\n\n<div>\nblock\n</div>")
    (part,) = view.parts
    assert isinstance(part, ProsePart)
    shown = part.toPlainText()
    assert text.replace("&lt;i&gt;", "<i>") in shown
    assert "<div> block </div>" in shown
    block = part.document().firstBlock()
    while block.isValid():
        assert not any(fragment.charFormat().isAnchor() for fragment in fragments(block))
        assert not any(fragment.charFormat().isImageFormat() for fragment in fragments(block))
        block = block.next()


LINKS = """[web](https://example.org/p?q=1) [mail](mailto:a@b.c) [js](javascript:alert) [file](file:///etc/passwd)
[app](ms-settings:about) [share](//host/x) [page](page.html) ![cat](https://example.org/c.png) ![bad](file:///x.png)"""


def test_only_web_and_mail_become_links(qtbot: QtBot, theme: Theme) -> None:
    view = view_of(qtbot, theme, LINKS)
    (part,) = view.parts
    assert isinstance(part, ProsePart)
    targets = {
        fragment.text(): fragment.charFormat().anchorHref()
        for fragment in fragments(part.document().firstBlock())
        if fragment.charFormat().isAnchor()
    }
    assert targets == {
        "web": "https://example.org/p?q=1",
        "mail": "mailto:a@b.c",
        "[image: cat]": "https://example.org/c.png",
    }
    assert part.document().resource(2, QUrl("https://example.org/c.png")) is None


def test_a_click_opens_links_and_nothing_else(qtbot: QtBot, theme: Theme, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    view = view_of(qtbot, theme, LINKS)
    (part,) = view.parts
    assert isinstance(part, ProsePart)
    for address in ("https://example.org/", "file:///etc/passwd", "javascript:alert(1)", "ms-settings:about"):
        part.anchorClicked.emit(QUrl(address))
    assert opened == ["https://example.org/"]


def test_copied_text_is_plain_and_without_padding(qtbot: QtBot, theme: Theme) -> None:
    view = view_of(qtbot, theme, "Run `python run.py` now")
    (part,) = view.parts
    assert isinstance(part, ProsePart)
    part.selectAll()
    data = part.createMimeDataFromSelection()
    assert data.text() == "Run python run.py now"
    assert data.formats() == ["text/plain"]


def test_code_is_copied_as_it_was_written(qtbot: QtBot, theme: Theme) -> None:
    view = view_of(qtbot, theme, "```python\nif x:\n\treturn '🙂'\n```")
    (part,) = view.parts
    assert isinstance(part, CodeBlock)
    part.copy()
    assert QGuiApplication.clipboard().text() == "if x:\n\treturn '🙂'"
    assert part.text.accessibleName() == "python code block"


def test_another_theme_recolours_text_and_code(qtbot: QtBot, theme: Theme) -> None:
    view = view_of(qtbot, theme, EVERYTHING)
    theme.choose("dark")
    assert dump(view) == dump(view_of(qtbot, theme, EVERYTHING))
    growing = view_of(qtbot, theme)
    growing.feed("half a sent")
    growing.flush()
    theme.choose("light")
    growing.feed("ence")
    growing.finish()
    assert dump(growing) == dump(view_of(qtbot, theme, "half a sentence"))


def test_the_view_is_as_high_as_its_text(qtbot: QtBot, theme: Theme) -> None:
    view = view_of(qtbot, theme, EVERYTHING)
    view.resize(600, 100)
    view.show()
    qtbot.waitUntil(lambda: all(part.height() >= part.document().size().height() for part in _prose_parts(view)))
    for part in view.parts:
        if isinstance(part, CodeBlock):
            assert part.text.verticalScrollBar().maximum() == 0, "code never scrolls vertically"


def _prose_parts(view: MarkdownView) -> list[ProsePart]:
    return [part for part in view.parts if isinstance(part, ProsePart)]
