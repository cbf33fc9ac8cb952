"""Requests to a loaded model as the engine makes them, with everything that was computed on the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.contract.events import Event, PrefillProgress, RequestDone, RequestStarted
from engine.generate.detokenize import Detokenizer
from engine.generate.loop import Generation
from engine.generate.request import GenerationRequest, Outcome, Sampling
from engine.model.interface import LanguageModel


@dataclass
class Turn:
    """One request and its answer."""

    outcome: Outcome | None = None
    events: list[Event] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    prefilled: list[int] = field(default_factory=list)

    @property
    def answer(self) -> list[int]:
        """Greedy tokens, the last one not computed further."""
        return [int(row.argmax()) for row in self.logits]

    @property
    def reused(self) -> int:
        """As all events of the request say."""
        known = (RequestStarted, PrefillProgress, RequestDone)
        (count,) = {event.reused_tokens for event in self.events if isinstance(event, known)}
        assert self.outcome is None or self.outcome.reused_tokens == count
        return count


class _Watched:
    """A model that notes what it is asked and answers."""

    def __init__(self, model: LanguageModel, turn: Turn) -> None:
        self._model = model
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def prefill(self, token_ids: Sequence[int], **more: Any) -> Tensor:
        self._turn.prefilled += token_ids
        return self._noted(self._model.prefill(token_ids, **more))

    def decode(self, token_id: int) -> Tensor:
        return self._noted(self._model.decode(token_id))

    def _noted(self, logits: Tensor) -> Tensor:
        self._turn.logits.append(logits)
        return logits


def ask(
    model: LanguageModel,
    prompt: Sequence[int],
    answer_tokens: int = 1,
    *,
    cancelled: Callable[[Turn], bool] = lambda turn: False,
    turn: Turn | None = None,
) -> Turn:
    """Answer greedily; stop tokens are only tokens here. `turn`: where to note, if the request will fail."""
    turn = Turn() if turn is None else turn
    watched: Any = _Watched(model, turn)
    watched.stop_token_ids = frozenset[int]()
    request = GenerationRequest("r", tuple(prompt), Sampling(temperature=0.0, top_p=1.0), answer_tokens)
    generation = Generation(watched, Detokenizer(model.tokenizer), request, accepted_s=0.0)
    turn.outcome = generation.run(on_text=lambda _: None, report=turn.events.append, cancelled=lambda: cancelled(turn))
    return turn


def assert_as_cold(model: LanguageModel, prompt: Sequence[int], turn: Turn) -> None:
    """The same request to an empty cache gives the same logits and tokens."""
    model.reset()
    cold = ask(model, prompt, len(turn.logits))
    assert cold.reused == 0
    torch.testing.assert_close(torch.stack(turn.logits), torch.stack(cold.logits), rtol=0, atol=1e-5)
    assert turn.answer == cold.answer
