"""From the messages of a request to turns a chat template accepts, and to the prompt's token ids.

Many templates demand that user and assistant alternate and that system text comes first. So, always:
turns of the same role in a row are joined by a blank line; system text that does not come first is put before the
text of the user turn that follows it. If a template knows no system role at all, system text joins the first user turn.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.contract.errors import ContextTooLongError
from engine.serve.chat_template import TEMPLATE_ERRORS, ChatTemplate
from engine.serve.control_text import ControlWords
from engine.serve.openai import ApiError, ChatMessage
from engine.serve.template_meter import Meter, TemplateCancelledError, TemplateLimitError

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_BLANK_LINE = "\n\n"
_PIECE_LETTERS = 1 << 17
_BREATH_S = 0.001  # whoever waits for the tokenizer gets it now; a lock alone is not fair
_FAR_TOO_LONG = 4  # times the context
_MANY_LETTERS = 16  # a token; ordinary text has three to five


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the conversation; `index` is that of the client's first message in it."""

    role: str
    text: str
    index: int


def turns(messages: Sequence[ChatMessage]) -> tuple[Turn, ...]:
    """Read and normalise the messages of a request.

    Raises:
        ApiError: 400, an unknown role or a part that is not text.
    """
    groups: list[list[Turn]] = []  # turns of one role in a row
    late_system: list[Turn] = []
    only_system = True
    for index, message in enumerate(messages):
        role = _ROLES.get(message.role)
        if role is None:
            where = f"messages[{index}].role"
            known = ", ".join(_ROLES)
            raise ApiError(400, f"{where} is {message.role!r:.60}; known roles are {known}.", param=where)
        turn = Turn(role, message.text(index), index)
        if role == "system" and not only_system:
            late_system.append(turn)
            continue
        only_system = only_system and role == "system"
        if role == "user" and late_system:
            turn = _joined([*late_system, turn], "user")
            late_system = []
        _append(groups, turn)
    if late_system:
        _append(groups, _joined(late_system, "user"))
    return tuple(group[0] if len(group) == 1 else _joined(group, group[0].role) for group in groups)


def without_system(conversation: Sequence[Turn]) -> tuple[Turn, ...]:
    """The same with leading system text put into the first user turn."""
    if not conversation or conversation[0].role != "system":
        return tuple(conversation)
    head, *rest = conversation
    if rest and rest[0].role == "user":
        return (_joined([head, rest[0]], "user"), *rest[1:])
    return (replace(head, role="user"), *rest)


def _joined(parts: Sequence[Turn], role: str) -> Turn:
    return Turn(role, _BLANK_LINE.join(part.text for part in parts if part.text), parts[0].index)


def _append(groups: list[list[Turn]], turn: Turn) -> None:
    if groups and groups[-1][0].role == turn.role:
        groups[-1].append(turn)
    else:
        groups.append([turn])


class PromptCancelledError(Exception):
    """Nobody waits for this prompt any more."""


def _as_messages(conversation: Sequence[Turn]) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": turn.text} for turn in conversation]


def _template_of(tokenizer: Any) -> ChatTemplate | None:
    """The template that the tokenizer would take for a chat without tools; None: it has none."""
    try:
        source = str(tokenizer.get_chat_template())
    except ValueError:  # none, or several and none of them is said to be the usual one
        return None
    return ChatTemplate(source, tokenizer.special_tokens_map)


class PromptMaker:
    """Renders conversations with the model's own chat template. Safe to use from several threads."""

    def __init__(self, tokenizer: Any, context_tokens: int) -> None:
        """`context_tokens`: what the KV cache holds; a text far beyond it is counted piece by piece."""
        self._tokenizer = tokenizer
        self._context_tokens = context_tokens
        self._control = ControlWords(tokenizer)
        self._template = _template_of(tokenizer)
        self._using = threading.Lock()  # a fast tokenizer refuses to be borrowed twice

    def token_ids(
        self, messages: Sequence[ChatMessage], cancelled: Callable[[], bool] = lambda: False
    ) -> tuple[int, ...]:
        """The prompt that asks for the next assistant turn. Control tokens come from the template alone.

        Raises:
            ApiError: 400, the template refuses the conversation; names the role and its place.
            TemplateLimitError: the template makes too much text, or does not come to an end.
            ContextTooLongError: the text is far longer than the context.
            PromptCancelledError: `cancelled` said so.
        """
        hidden: list[str] = []
        conversation = tuple(
            replace(turn, text=self._control.hide(turn.text, turn.role, hidden)) for turn in turns(messages)
        )
        meter = Meter(sum(len(turn.text) for turn in conversation), cancelled)
        try:
            text = self._text(conversation, hidden, meter)
        except TemplateCancelledError as cause:
            raise PromptCancelledError from cause
        self._refuse_if_huge(text, cancelled)
        with self._using:
            if cancelled():
                raise PromptCancelledError
            ids = self._control.token_ids(text, hidden)
        if not ids:
            raise ApiError(400, "The messages make an empty prompt with this model's chat template.", param="messages")
        return tuple(ids)

    def _refuse_if_huge(self, text: str, cancelled: Callable[[], bool]) -> None:
        """Count a very long text in pieces: as a whole it would take 130 bytes a letter, and keep others waiting.

        Raises:
            ContextTooLongError: it cannot fit. The number may differ from the exact one by one token a piece, and is
                told by the first pieces where these alone are far too long.
        """
        if len(text) <= max(_PIECE_LETTERS, _MANY_LETTERS * self._context_tokens):
            return
        pieces = range(0, len(text), _PIECE_LETTERS)
        count = 0
        for number, start in enumerate(pieces):
            if count > _FAR_TOO_LONG * self._context_tokens + number:
                count = count * len(text) // start
                break
            time.sleep(_BREATH_S)
            if cancelled():
                raise PromptCancelledError
            with self._using:
                count += len(
                    self._tokenizer(text[start : start + _PIECE_LETTERS], add_special_tokens=False)["input_ids"]
                )
        if count - len(pieces) > self._context_tokens:
            raise ContextTooLongError(prompt_tokens=count, context_tokens=self._context_tokens)

    def _text(self, conversation: tuple[Turn, ...], hidden: list[str], meter: Meter) -> str:
        if self._template is None:
            raise ApiError(400, "This model has no chat template, so it cannot chat.", code="no_chat_template")
        folded = without_system(conversation)
        try:
            return self._template.render(_as_messages(conversation), meter)
        except TEMPLATE_ERRORS as refusal:
            if folded == conversation:
                raise self._refused(self._template, folded, refusal, hidden, meter) from refusal
        try:
            return self._template.render(_as_messages(folded), meter)
        except TEMPLATE_ERRORS as refusal:
            raise self._refused(self._template, folded, refusal, hidden, meter) from refusal

    def _refused(
        self,
        template: ChatTemplate,
        conversation: tuple[Turn, ...],
        refusal: Exception,
        hidden: list[str],
        meter: Meter,
    ) -> ApiError:
        """Name the first turn with which the template fails, if that is found within the limits of the rendering."""
        culprit = conversation[-1]
        try:
            for count in range(1, len(conversation)):
                template.render(_as_messages(conversation[:count]), meter)
        except TEMPLATE_ERRORS as earlier:
            culprit, refusal = conversation[count - 1], earlier
        except TemplateLimitError:
            pass
        where = f"messages[{culprit.index}]"
        words = self._control.show(str(refusal), hidden)
        return ApiError(
            400,
            f"The model's chat template refuses {where} with role {culprit.role!r}: {words}",
            code="chat_template",
            param=f"{where}.role",
        )
