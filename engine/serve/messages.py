"""From the messages of a request to turns a chat template accepts, and to the prompt's token ids.

Many templates demand that user and assistant alternate and that system text comes first. So, always:
turns of the same role in a row are joined by a blank line; system text that does not come first is put before the
text of the user turn that follows it. If a template knows no system role at all, system text joins the first user turn.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2.exceptions import TemplateError

from engine.serve.openai import ApiError, ChatMessage

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_BLANK_LINE = "\n\n"
# What a template can raise: its own refusals, and slips of its author in a corner we are the first to reach.
_TEMPLATE_ERRORS = (TemplateError, ValueError, TypeError, LookupError, AttributeError)


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
    result: list[Turn] = []
    late_system: list[Turn] = []
    for index, message in enumerate(messages):
        role = _ROLES.get(message.role)
        if role is None:
            where = f"messages[{index}].role"
            known = ", ".join(_ROLES)
            raise ApiError(400, f"{where} is {message.role!r}; known roles are {known}.", param=where)
        turn = Turn(role, message.text(index), index)
        if role == "system" and any(earlier.role != "system" for earlier in result):
            late_system.append(turn)
            continue
        if role == "user" and late_system:
            turn = _joined([*late_system, turn], "user")
            late_system = []
        result = _appended(result, turn)
    if late_system:
        result = _appended(result, _joined(late_system, "user"))
    return tuple(result)


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


def _appended(earlier: list[Turn], turn: Turn) -> list[Turn]:
    if earlier and earlier[-1].role == turn.role:
        return [*earlier[:-1], _joined([earlier[-1], turn], turn.role)]
    return [*earlier, turn]


class PromptMaker:
    """Renders conversations with the model's own chat template. Safe to use from several threads."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._using = threading.Lock()  # a fast tokenizer refuses to be borrowed twice

    def token_ids(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """The prompt that asks for the next assistant turn.

        Raises:
            ApiError: 400, the template refuses the conversation; names the role and its place.
        """
        conversation = turns(messages)
        with self._using:
            text = self._text(conversation)
            ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids:
            raise ApiError(400, "The messages make an empty prompt with this model's chat template.", param="messages")
        return tuple(ids)

    def _text(self, conversation: tuple[Turn, ...]) -> str:
        if not getattr(self._tokenizer, "chat_template", None):
            raise ApiError(400, "This model has no chat template, so it cannot chat.", code="no_chat_template")
        folded = without_system(conversation)
        try:
            return self._render(conversation)
        except _TEMPLATE_ERRORS as refusal:
            if folded == conversation:
                raise self._refused(folded, refusal) from refusal
        try:
            return self._render(folded)
        except _TEMPLATE_ERRORS as refusal:
            raise self._refused(folded, refusal) from refusal

    def _render(self, conversation: Sequence[Turn]) -> str:
        text: str = self._tokenizer.apply_chat_template(
            [{"role": turn.role, "content": turn.text} for turn in conversation],
            tokenize=False,
            add_generation_prompt=True,
        )
        return text

    def _refused(self, conversation: tuple[Turn, ...], refusal: Exception) -> ApiError:
        """Name the first turn with which the template fails."""
        culprit = conversation[-1]
        for count in range(1, len(conversation)):
            try:
                self._render(conversation[:count])
            except _TEMPLATE_ERRORS as earlier:
                culprit, refusal = conversation[count - 1], earlier
                break
        where = f"messages[{culprit.index}]"
        return ApiError(
            400,
            f"The model's chat template refuses {where} with role {culprit.role!r}: {refusal}",
            code="chat_template",
            param=f"{where}.role",
        )
