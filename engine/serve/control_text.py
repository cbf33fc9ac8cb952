"""Text that people typed never becomes control tokens, however much it looks like them.

A chat template mixes its own control tokens with what people wrote, and a tokenizer cannot tell them apart afterwards.
So what looks like a control token is taken out before the template is rendered, a mark is left in its place, and it is
put back as ordinary text while the prompt is turned into tokens. Text without such words takes the usual way, so its
tokens are exactly those of the model's makers. Where a tokenizer begins every text with a space, one comes before and
after such a word.
"""

import re
from itertools import groupby
from typing import Any

_MARK = "\U0010fffd"  # for private use; text that holds it is taken out as well
_PLACE = re.compile(f"{_MARK}(\\d+){_MARK}")
_PLAIN_TAG = re.compile(r"</?[A-Za-z_]+>")  # <think>, <tool_call>: models write them into answers, and people may too


class ControlWords:
    """The control tokens of one tokenizer, as words that may stand in a text."""

    def __init__(self, tokenizer: Any) -> None:
        template = str(getattr(tokenizer, "chat_template", None) or "")
        added = list(tokenizer.added_tokens_decoder.items())
        named = {str(token) for _, token in added if str(token) in template and not _PLAIN_TAG.fullmatch(str(token))}
        special = {str(token) for _, token in added if token.special}
        self._tokenizer = tokenizer
        self._ids = {number for number, token in added if str(token) in named | special}
        self._special = _any_of(special)
        self._all = _any_of(named | special)
        self._spelled: dict[str, list[int]] = {}

    def hide(self, text: str, role: str, hidden: list[str]) -> str:
        """The text with a mark for each control word, which goes to the end of `hidden`.

        An answer of the model may hold what its template looks for, so of assistants only special tokens are hidden.
        """

        def mark(found: re.Match[str]) -> str:
            hidden.append(found[0])
            return f"{_MARK}{len(hidden) - 1}{_MARK}"

        return (self._special if role == "assistant" else self._all).sub(mark, text)

    def token_ids(self, text: str, hidden: list[str]) -> list[int]:
        """Tokens of a rendered prompt; the hidden words become ordinary ones."""
        if not hidden:
            return self._usual(text)
        pieces = _PLACE.split(text)  # text and numbers of marks take turns
        ids: list[int] = []
        for number, between in enumerate(self._each(pieces[::2])):
            if number:
                ids += self._plain(hidden[int(pieces[2 * number - 1])])
            ids += between
        return ids

    def _each(self, texts: list[str]) -> list[list[int]]:
        """Tokens of each text; all at once, which takes a fifth of the time where there are many short ones."""
        found: list[list[int]] = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        return found

    def show(self, text: str, hidden: list[str]) -> str:
        """The text with the hidden words in their places, for messages."""
        return _PLACE.sub(lambda found: hidden[int(found[1])], text)

    def _usual(self, text: str, **options: bool) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False, **options)["input_ids"]
        return ids

    def _plain(self, word: str) -> list[int]:
        if word not in self._spelled:
            ids = self._usual(word, split_special_tokens=True)
            if not self._ids.isdisjoint(ids):  # a word of the template that is no special token
                ids = [number for letter in word for number in self._usual(letter, split_special_tokens=True)]
            self._spelled[word] = ids
        return self._spelled[word]


def _any_of(words: set[str]) -> re.Pattern[str]:
    """The longest of the words that begins at a place.

    Written as a tree of common beginnings: models have thousands of such words, and a plain alternation tries each of
    them at every "<": 70 us, with the engine standing still.
    """
    known = sorted({_MARK, *words} - {""})
    try:
        return re.compile(_tree(known))
    except RecursionError:  # hundreds of words, each of which begins the next one
        return re.compile("|".join(re.escape(word) for word in sorted(known, key=len, reverse=True)))


def _tree(words: list[str], depth: int = 0) -> str:
    """An expression for sorted words of which the first `depth` letters are the same and already written."""
    ends_here = len(words[0]) == depth  # the shortest of those with the same beginning comes first
    longer = words[ends_here:]
    if not longer:
        return ""
    first, last = longer[0], longer[-1]
    shared = next((at for at, letters in enumerate(zip(first, last, strict=False)) if len({*letters}) > 1), len(first))
    if shared > depth and not ends_here:
        return re.escape(first[depth:shared]) + _tree(longer, shared)
    branches = [_tree_after_letter(list(group), depth) for _, group in groupby(longer, key=lambda word: word[depth])]
    return f"(?:{'|'.join(branches)}){'?' if ends_here else ''}"


def _tree_after_letter(words: list[str], depth: int) -> str:
    return re.escape(words[0][depth]) + _tree(words, depth + 1)
