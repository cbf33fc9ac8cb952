"""A loaded model: one sequence at a time, prompt in chunks, one token at a time, everything given back at the end."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import override

from engine.contract.errors import ContextTooLongError, SplitpinError
from engine.contract.plan import MemoryPlan
from engine.contract.residency import ResidencyReport, SlotUse
from engine.model.change import change_plan
from engine.model.integrity import check_integrity
from engine.model.interface import GenerationCancelledError, LanguageModel
from engine.model.parts import Parts
from engine.model.prefix_cache import PrefixCache
from engine.model.text_settings import TextSettings


def keep_head_flat(model: Any) -> None:
    """Hand the head its rows as one matrix, whatever they were cut out of.

    The last position of a prompt, [1, 1, M], keeps the stride of all positions; torch then multiplies it as a batch on
    the CPU and makes a transposed copy of the whole head first: 54 MiB and 0.8 s where 0.04 s do.
    """
    head = model.get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(_flat)


def _flat(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    hidden, *others = inputs
    return (hidden.reshape(-1, hidden.shape[-1]).view(hidden.shape), *others)


class UnknownTokenError(SplitpinError):
    """The tokenizer makes tokens of a text that the model has no weights for."""

    kind = "answer_failed"

    def __init__(self, *, token_id: int, known_tokens: int) -> None:
        super().__init__(
            f"The text holds token {token_id:,} of the tokenizer; the model knows only {known_tokens:,}.",
            "Download tokenizer and weights again; they do not belong together.",
            token_id=token_id,
            known_tokens=known_tokens,
        )


class LoadedModel(LanguageModel):
    """Computes logits with transformers' model, our experts and our KV cache. One thread at a time."""

    def __init__(
        self,
        plan: MemoryPlan,
        *,
        model: Any,
        parts: Parts,
        cache_argument: str,
        text: TextSettings,
        residency: ResidencyReport,
        release: Callable[[], None],
    ) -> None:
        """`cache_argument` is the name of the model's parameter for the cache; `release` frees the memory."""
        self.name = plan.model.name
        self.context_tokens = plan.context_tokens
        self.vocab_size = plan.model.vocab_size
        self.tokenizer = text.tokenizer
        self.generation_defaults = text.generation_defaults
        self.stop_token_ids = text.stop_token_ids
        self._chunk = plan.prefill_chunk
        self._resumes = plan.model.resumes_in_chunks
        self._model: Any = model
        keep_head_flat(model)
        self._embedded: int = getattr(model.get_input_embeddings(), "num_embeddings", self.vocab_size)
        self._parts = parts
        self._cache_argument = cache_argument
        self._device = parts.device.torch_device
        self._residency = residency
        self._release: Callable[[], None] | None = release
        self._known_sequences: PrefixCache | None = None

    @property
    def _sequences(self) -> PrefixCache:
        """What the cache holds; an exchanged cache is empty."""
        cache, known = self._parts.cache, self._known_sequences
        assert cache is not None
        if known is None or (known.cache, known.prefill_chunk) != (cache, self._chunk):
            known = self._known_sequences = PrefixCache(cache, self._chunk, resumes=self._resumes)
        return known

    @property
    @override
    def cached_tokens(self) -> int:
        return self._sequences.cached_tokens

    @override
    def reset(self) -> None:
        self._sequences.reset()

    @override
    def begin(self, prompt: Sequence[int]) -> int:
        most = max(prompt, default=0)
        if most >= self._embedded:  # a GPU ends the whole process for it
            raise UnknownTokenError(token_id=most, known_tokens=self._embedded)
        return self._sequences.begin(prompt)

    @override
    def end(self) -> None:
        self._sequences.snapshot()

    @override
    def prefill(
        self, token_ids: Sequence[int], *, on_progress: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> Tensor:
        if not token_ids:
            raise ValueError("prefill needs at least one token")
        self._check_room(len(token_ids))
        sequences = self._sequences
        sequences.make_room(len(token_ids))
        stop = sequences.tail(len(token_ids))
        logits: Tensor | None = None
        done = 0
        while done < len(token_ids):
            if cancelled():
                raise GenerationCancelledError
            size = self._chunk if self._resumes or not self.cached_tokens else 1
            end = done + size
            chunk = token_ids[done : min(end, stop) if done < stop else end]
            logits = self._step(chunk)
            done += len(chunk)
            if done == stop:
                sequences.snapshot()
            on_progress(done)
        return cast(Tensor, logits)

    @override
    def decode(self, token_id: int) -> Tensor:
        self._check_room(1)
        return self._step([token_id])

    def _check_room(self, new_tokens: int) -> None:
        wanted = self.cached_tokens + new_tokens
        if wanted > self.context_tokens:
            raise ContextTooLongError(prompt_tokens=wanted, context_tokens=self.context_tokens)

    def _step(self, token_ids: Sequence[int]) -> Tensor:
        self._sequences.make_room(len(token_ids))
        with torch.inference_mode():
            inputs = torch.tensor([list(token_ids)], dtype=torch.long, device=self._device)
            arguments = {self._cache_argument: self._parts.cache}
            out = self._model(input_ids=inputs, use_cache=True, logits_to_keep=1, **arguments)
            logits = cast(Tensor, out.logits[0, -1].float().cpu())
        self._sequences.computed(token_ids)
        return logits

    @property
    @override
    def plan(self) -> MemoryPlan:
        return self._parts.plan

    @override
    def change_plan(self, plan: MemoryPlan, on_progress: Callable[[int, int], None] | None = None) -> ResidencyReport:
        self.reset()
        self._residency = change_plan(self._parts, plan, self._residency, on_progress)
        self.context_tokens = plan.context_tokens
        self._chunk = plan.prefill_chunk
        self._known_sequences = None  # it knows the size of chunks
        return self._residency

    @override
    def recover(self) -> None:
        self._parts.device.synchronize()
        self._parts.forget_slots(self._parts.layers)
        self.reset()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    @override
    def check_integrity(self) -> tuple[str, ...]:
        return check_integrity(self._parts, self.cached_tokens)

    @override
    def residency(self) -> ResidencyReport:
        return self._residency

    @override
    def slot_use(self) -> tuple[SlotUse, ...]:
        slots = self._parts.slots
        uses = {} if slots is None else slots.table.uses
        return tuple(SlotUse(layer=layer, **asdict(uses[layer])) for layer in sorted(uses))

    @override
    def close(self) -> None:
        if self._release is not None:
            release, self._release = self._release, None
            self._model = None
            release()
