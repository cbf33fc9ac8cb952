"""Markdown tokens into a QTextDocument by formats. No HTML is made or parsed on the way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from markdown_it.token import Token
from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFormat,
    QTextFrameFormat,
    QTextLength,
    QTextList,
    QTextListFormat,
    QTextTableFormat,
)

from app.chat.markdown import link_target
from app.ui.theme import Weight, mono_font, ui_font
from app.ui.tokens import Tokens
from app.ui.widgets.label import plain_tip

BODY_PX: Final = 14
LINE_HEIGHT_PERCENT: Final = 150
INDENT_PX: Final = 28  # one level of a list: room for "10."
QUOTE_PX: Final = 16
QUOTE_DEPTH: Final = QTextFormat.Property.UserProperty.value + 1  # on blocks: how many bars to paint on the left
PAD: Final = "\u2009"  # thin space around inline code, taken out again when text is copied
LINE_BREAK: Final = "\u2028"  # a new line inside one block

_HEADING_PX: Final = {1: 21, 2: 18, 3: 16}


@dataclass(frozen=True, slots=True)
class _Style:
    """Looks of a run of text."""

    px: int = BODY_PX
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    padding: bool = False  # around code: the background without the wide blanks of the mono font
    bullet: bool = False
    quoted: bool = False
    link: str | None = None


class MarkdownWriter:
    """Writes blocks at a cursor. `fresh` tells that the cursor's block is empty and is to be used."""

    def __init__(self, tokens: Tokens) -> None:
        self._colors = tokens
        self._lists: list[tuple[QTextListFormat, QTextList | None]] = []
        self._quote = 0
        self._item_is_open = False  # the block of a list item waits for its first paragraph
        self.fresh = True

    def write(self, cursor: QTextCursor, blocks: Sequence[Sequence[Token]]) -> None:
        """Write top-level blocks, one after the other."""
        for tokens in blocks:
            self._write_block(cursor, tokens)

    def _write_block(self, cursor: QTextCursor, tokens: Sequence[Token]) -> None:
        index = 0
        while index < len(tokens):
            token = tokens[index]
            match token.type:
                case "heading_open":
                    self._heading(cursor, int(token.tag[1]), tokens[index + 1])
                case "paragraph_open":
                    self._paragraph(cursor, tokens[index + 1])
                case "bullet_list_open" | "ordered_list_open":
                    self._lists.append((self._list_format(token), None))
                case "bullet_list_close" | "ordered_list_close":
                    self._lists.pop()
                    self._item_is_open = False
                case "list_item_open":
                    self._item(cursor)
                case "blockquote_open":
                    self._quote += 1
                    self._item_is_open = False
                case "blockquote_close":
                    self._quote -= 1
                case "fence" | "code_block":
                    self._code(cursor, token.content)
                case "hr":
                    self._rule(cursor)
                case "table_open":
                    end = next(i for i in range(index, len(tokens)) if tokens[i].type == "table_close")
                    self._table(cursor, tokens[index:end])
                    index = end
                case _:
                    pass  # closings, and inline tokens that were written with their opening
            index += 1

    # blocks

    def _block(self, *, top: int = 0, bottom: int = 8, line_percent: int = LINE_HEIGHT_PERCENT) -> QTextBlockFormat:
        made = QTextBlockFormat()
        made.setTopMargin(0 if self.fresh else top)
        made.setBottomMargin(bottom)
        made.setLeftMargin(QUOTE_PX * self._quote)
        if self._quote:
            made.setProperty(QUOTE_DEPTH, self._quote)
        made.setLineHeight(line_percent, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        return made

    def _start(self, cursor: QTextCursor, block: QTextBlockFormat) -> None:
        if self.fresh:
            cursor.setBlockFormat(block)
            self.fresh = False
        else:
            cursor.insertBlock(block, QTextCharFormat())

    def _heading(self, cursor: QTextCursor, level: int, inline: Token) -> None:
        block = self._block(top=10, bottom=6, line_percent=130)
        block.setHeadingLevel(level)
        self._start(cursor, block)
        px = _HEADING_PX.get(level, 15)
        self._inline(cursor, inline, _Style(px=px, bold=True, quoted=self._quote > 0))

    def _paragraph(self, cursor: QTextCursor, inline: Token) -> None:
        if self._item_is_open:
            self._item_is_open = False  # the item's own block, made by _item
        else:
            block = self._block(bottom=4 if self._lists else 8)
            block.setLeftMargin(block.leftMargin() + INDENT_PX * len(self._lists))
            self._start(cursor, block)
        self._inline(cursor, inline, _Style(quoted=self._quote > 0))

    def _list_format(self, token: Token) -> QTextListFormat:
        made = QTextListFormat()
        made.setIndent(len(self._lists) + 1)
        if token.type == "ordered_list_open":
            made.setStyle(QTextListFormat.Style.ListDecimal)
            if (start := token.attrGet("start")) is not None:
                made.setStart(int(start))
        else:
            styles = (QTextListFormat.Style.ListDisc, QTextListFormat.Style.ListCircle)
            made.setStyle(styles[len(self._lists) % 2])
        return made

    def _item(self, cursor: QTextCursor) -> None:
        self._start(cursor, self._block(bottom=3))
        made, started = self._lists[-1]
        bullet = made.style() is not QTextListFormat.Style.ListDecimal
        cursor.setBlockCharFormat(_characters(self._colors, _Style(quoted=self._quote > 0, bullet=bullet)))
        if started is None:
            self._lists[-1] = (made, cursor.createList(made))
        else:
            started.add(cursor.block())
        self._item_is_open = True

    def _code(self, cursor: QTextCursor, code: str) -> None:
        """Code inside a list or quote; at the top level it is a widget of its own."""
        block = self._block(bottom=6, line_percent=120)
        block.setLeftMargin(block.leftMargin() + INDENT_PX * len(self._lists))
        block.setBackground(QColor(self._colors.raised))
        self._item_is_open = False
        self._start(cursor, block)
        cursor.insertText(code.rstrip("\n").replace("\n", LINE_BREAK), _characters(self._colors, _Style(code=True)))

    def _rule(self, cursor: QTextCursor) -> None:
        block = self._block(top=6, bottom=10)
        width = QTextLength(QTextLength.Type.PercentageLength, 100)
        block.setProperty(QTextFormat.Property.BlockTrailingHorizontalRulerWidth.value, width)
        block.setBackground(QBrush(QColor(self._colors.border_strong)))  # the colour of the line, not of an area
        self._start(cursor, block)

    # tables

    def _table(self, cursor: QTextCursor, tokens: Sequence[Token]) -> None:
        rows: list[list[tuple[Token, Token]]] = []  # opening and content of each cell
        for index, token in enumerate(tokens):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                rows[-1].append((token, tokens[index + 1]))
        if not self.fresh:
            cursor.insertBlock(_sliver(), QTextCharFormat())
        columns = max(len(row) for row in rows)
        table = cursor.insertTable(len(rows), columns, self._table_format())
        for y, row in enumerate(rows):
            for x, (opening, inline) in enumerate(row):
                cell = table.cellAt(y, x)
                is_head = opening.type == "th_open"
                if is_head:
                    head = cell.format()
                    head.setBackground(QColor(self._colors.raised))
                    cell.setFormat(head)
                at = cell.firstCursorPosition()
                block = QTextBlockFormat()
                block.setLineHeight(118, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
                block.setAlignment(_alignment(opening))
                at.setBlockFormat(block)
                self._inline(at, inline, _Style(px=BODY_PX - 1, bold=is_head))
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.setBlockFormat(_sliver())  # Qt keeps an empty block after a table; the next block uses it
        self.fresh = True

    def _table_format(self) -> QTextTableFormat:
        made = QTextTableFormat()
        made.setCellPadding(6)
        made.setCellSpacing(0)
        made.setBorderCollapse(True)
        made.setBorder(1)
        edge = "#C9CFD8" if self._colors.is_light else self._colors.border  # the light border is too faint for a grid
        made.setBorderBrush(QBrush(QColor(edge)))
        made.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        made.setTopMargin(2)
        made.setBottomMargin(10)
        made.setLeftMargin(QUOTE_PX * self._quote + INDENT_PX * len(self._lists))
        made.setHeaderRowCount(1)
        return made

    # text

    def _inline(self, cursor: QTextCursor, inline: Token, base: _Style) -> None:
        style = base
        for token in inline.children or ():
            match token.type:
                case "strong_open" | "strong_close":
                    style = replace(style, bold=base.bold or token.nesting > 0)
                case "em_open" | "em_close":
                    style = replace(style, italic=token.nesting > 0)
                case "s_open" | "s_close":
                    style = replace(style, strike=token.nesting > 0)
                case "link_open":
                    style = replace(style, link=link_target(str(token.attrGet("href") or "")))
                case "link_close":
                    style = replace(style, link=None)
                case "code_inline":
                    self._text(cursor, PAD, replace(style, padding=True))
                    self._text(cursor, token.content, replace(style, code=True))
                    self._text(cursor, PAD, replace(style, padding=True))
                case "softbreak":
                    self._text(cursor, " ", style)
                case "hardbreak":
                    self._text(cursor, LINE_BREAK, style)
                case "image":  # named, never fetched
                    target = link_target(str(token.attrGet("src") or ""))
                    self._text(cursor, f"[image: {token.content}]", replace(style, link=target))
                case _:
                    self._text(cursor, token.content, style)

    def _text(self, cursor: QTextCursor, text: str, style: _Style) -> None:
        cursor.insertText(text, _characters(self._colors, style))


@lru_cache(maxsize=256)
def _characters(colors: Tokens, style: _Style) -> QTextCharFormat:
    made = QTextCharFormat()
    if style.code or style.bullet:  # Qt leaves one blank between bullet and text: that of the mono font is wide enough
        made.setFont(mono_font(style.px - 1))
        made.setFontWeight(QFont.Weight.DemiBold if style.bold else QFont.Weight.Normal)
    else:
        made.setFont(ui_font(style.px, Weight.DemiBold if style.bold else Weight.Normal))
    if style.code or style.padding:
        made.setBackground(QColor(colors.raised))
    made.setFontItalic(style.italic)
    made.setFontStrikeOut(style.strike)
    made.setForeground(QColor(colors.text2 if style.quoted else colors.text))
    if style.link is not None:
        made.setAnchor(True)
        made.setAnchorHref(style.link)
        made.setToolTip(plain_tip(style.link))  # where it really goes
        made.setForeground(QColor(colors.accent))
        made.setFontUnderline(True)
    return made


def _alignment(opening: Token) -> Qt.AlignmentFlag:
    style = str(opening.attrGet("style") or "")
    if style.endswith("right"):
        return Qt.AlignmentFlag.AlignRight
    return Qt.AlignmentFlag.AlignHCenter if style.endswith("center") else Qt.AlignmentFlag.AlignLeft


def _sliver() -> QTextBlockFormat:
    """A block of one pixel: around tables Qt wants a block where the text has none."""
    made = QTextBlockFormat()
    made.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
    return made
