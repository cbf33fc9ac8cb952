"""The stock model as the reference, and how the tests talk to a model."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from engine.model.dense import model_class, read_config
from engine.model.interface import LanguageModel
from tests.support.tiny_models import VOCAB, TinyModel


def stock_logits(tiny: TinyModel, token_ids: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits of every position [T, V] from transformers' own eager experts, without any cache."""
    with torch.inference_mode():
        answer = _stock(tiny, dtype)(torch.tensor([list(token_ids)]), use_cache=False)
    return cast(Tensor, answer.logits[0].float())


def stock_greedy(tiny: TinyModel, prompt: Sequence[int], n_tokens: int) -> list[int]:
    """Greedy continuation by the stock model with its own DynamicCache."""
    model = _stock(tiny, torch.float32)
    cache, tokens, out = None, list(prompt), list[int]()
    with torch.inference_mode():
        for _ in range(n_tokens):
            answer = model(torch.tensor([tokens]), cache=cache, use_cache=True)
            cache, tokens = answer.cache, [int(answer.logits[0, -1].argmax())]
            out += tokens
    return out


def _stock(tiny: TinyModel, dtype: torch.dtype) -> Any:
    """The stock model in evaluation mode, as `from_pretrained` leaves it."""
    config = read_config(tiny.folder)
    kind = model_class(config)
    own_loop = {} if kind._can_set_experts_implementation() is False else {"experts_implementation": "eager"}
    return kind.from_pretrained(tiny.folder, config=config, dtype=dtype, **own_loop)


def prefill(model: LanguageModel, token_ids: Sequence[int]) -> Tensor:
    """Logits after a prompt, nobody watching."""
    return model.prefill(token_ids, on_progress=lambda _: None, cancelled=lambda: False)


def greedy(model: LanguageModel, prompt: Sequence[int], n_tokens: int) -> list[int]:
    """Greedy continuation of our model."""
    logits, out = prefill(model, prompt), list[int]()
    for _ in range(n_tokens):
        out.append(int(logits.argmax()))
        logits = model.decode(out[-1])
    return out


def random_prompt(n_tokens: int, seed: int = 1) -> list[int]:
    """Token ids without the special ones."""
    generator = torch.Generator().manual_seed(seed)
    return [int(token) for token in torch.randint(4, VOCAB, (n_tokens,), generator=generator)]
