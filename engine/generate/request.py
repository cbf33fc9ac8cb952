"""What one request asks for and what came of it, as values. Free of torch: HTTP answers before torch is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]

DEFAULT_TEMPERATURE = 0.7  # where neither the request nor the model's generation_config.json says anything
DEFAULT_TOP_P = 0.95


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is picked from the logits. Temperature 0 is greedy; a filter at its default does nothing."""

    temperature: float = DEFAULT_TEMPERATURE
    top_k: int = 0
    top_p: float = DEFAULT_TOP_P
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None


def sampling_for(
    request: Mapping[str, float | None], model_defaults: Mapping[str, float], seed: int | None
) -> Sampling:
    """The request wins over the model's own defaults, and these over ours; None in the request means not named."""
    defaults = Sampling()

    def pick(name: str, ours: float) -> float:
        asked = request.get(name)
        return model_defaults.get(name, ours) if asked is None else asked

    return Sampling(
        temperature=pick("temperature", defaults.temperature),
        top_k=max(0, int(pick("top_k", defaults.top_k))),
        top_p=pick("top_p", defaults.top_p),
        min_p=pick("min_p", defaults.min_p),
        repetition_penalty=pick("repetition_penalty", defaults.repetition_penalty),
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt, already in token ids. `max_tokens` None: as long as the context allows."""

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """Times of one request; None where too few tokens were computed to tell.

    `ttft_s` runs from accepting the request, so waiting in the queue counts. `prefill_tok_s` is computed prompt
    tokens per second of prefill; `decode_tok_s` is output tokens per second after the first.
    """

    ttft_s: float | None = None
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. `answer_tokens` counts sampled tokens without the model's own stop token; `reused_tokens`
    of the prompt were in the KV cache already."""

    finish_reason: FinishReason
    prompt_tokens: int
    answer_tokens: int
    timings: Timings
    reused_tokens: int = 0
