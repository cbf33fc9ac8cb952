"""A language model that answers from a script: real tokenizer and template, deterministic logits, no weights.

Every byte is a token, so characters outside ASCII span several tokens. Slow work is gated by the test, never by time.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from typing_extensions import override

from engine.contract.errors import ContextTooLongError
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.plan_change import check_change
from engine.contract.residency import LayerResidency, ResidencyReport, SlotUse
from engine.model.interface import GenerationCancelledError, LanguageModel
from tests.support.tiny_plan import tiny_plan

MARKERS = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
EASY_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
STRICT_TEMPLATE = (
    "{% if messages[0].role == 'system' %}<|system|>{{ messages[0].content }}<|end|>{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_SYSTEM_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
RESIDENCY = ResidencyReport(
    device="CPU",
    simulated=False,
    layers=(LayerResidency(layer=0, asked=Tier.LOCKED, settled=Tier.LOCKED, bytes=4096),),
    ledger_asked=(),
    ledger_settled=(),
    self_test="not compared: scripted",
)


def byte_tokenizer(chat_template: str | None = EASY_TEMPLATE) -> Any:
    """Byte-level BPE without merges: one token a byte, plus the markers."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    make: Any = PreTrainedTokenizerFast  # its own signature is not typed
    tokenizer = make(tokenizer_object=core, eos_token="<|end|>", extra_special_tokens=MARKERS[:3])
    tokenizer.chat_template = chat_template
    return tokenizer


class Gate:
    """Lets a test decide when each step happens. Open for good until `close` is called."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self._closed = False
        self.arrived = threading.Semaphore(0)

    def close(self) -> None:
        """From now on every step waits for `let`."""
        self._closed = True

    def let(self, steps: int) -> None:
        """Allow some steps."""
        self._permits.release(steps)

    def open(self) -> None:
        """Allow all steps from now on."""
        self._closed = False
        self._permits.release(10_000)

    def wait_for_arrival(self) -> None:
        """Until one more step stands before the gate (or went through it)."""
        assert self.arrived.acquire(timeout=20), "no step came to the gate"

    def pass_through(self) -> None:
        self.arrived.release()
        if self._closed:
            assert self._permits.acquire(timeout=60), "the test left a step before a closed gate"


@dataclass
class FakeModel(LanguageModel):
    """Says the next of `answers` (the last one for ever), then its stop token."""

    answers: Sequence[str] = ("Paris.",)
    context_tokens: int = 4096
    chunk: int = 512
    name: str = "scripted"
    chat_template: str | None = EASY_TEMPLATE
    generation_defaults: dict[str, float] = field(default_factory=dict)
    fail_prefill: Callable[[], Exception | None] = lambda: None
    fail_decode_after: int | None = None  # tokens
    fail_change: Callable[[], Exception | None] = lambda: None
    findings: tuple[str, ...] = ()
    reuses: bool = False  # keeps what a new prompt has in common with the last sequence

    def __post_init__(self) -> None:
        self.tokenizer = byte_tokenizer(self.chat_template)
        self.vocab_size = len(self.tokenizer)
        self.stop_token_ids = frozenset({self.tokenizer.convert_tokens_to_ids("<|end|>")})
        self.prefill_gate = Gate()
        self.decode_gate = Gate()
        self.change_gate = Gate()
        self.current_plan = tiny_plan(context_tokens=512)
        self.recovered = 0
        self.looked = threading.Semaphore(0)  # one permit for each look at the books
        self.prompts: list[str] = []
        self.decoded = 0
        self.ended = 0
        self.closed = False
        self._held: list[int] = []
        self._answer: list[int] = []

    @property
    @override
    def cached_tokens(self) -> int:
        return len(self._held)

    @override
    def reset(self) -> None:
        self._held = []

    @override
    def begin(self, prompt: Sequence[int]) -> int:
        pairs = zip(self._held, prompt[:-1], strict=False) if self.reuses else ()
        same = [ours == theirs for ours, theirs in pairs]
        self._held = self._held[: same.index(False) if False in same else len(same)]
        return len(self._held)

    @override
    def end(self) -> None:
        self.ended += 1

    @override
    def prefill(
        self, token_ids: Sequence[int], *, on_progress: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> Tensor:
        if len(self._held) + len(token_ids) > self.context_tokens:
            raise ContextTooLongError(prompt_tokens=len(token_ids), context_tokens=self.context_tokens)
        self.prompts.append(self.tokenizer.decode(token_ids))
        for start in range(0, len(token_ids), self.chunk):
            self.prefill_gate.pass_through()
            if cancelled():
                raise GenerationCancelledError
            if error := self.fail_prefill():
                raise error
            self._held += token_ids[start : start + self.chunk]
            on_progress(min(start + self.chunk, len(token_ids)))
        text = self.answers[min(len(self.prompts), len(self.answers)) - 1]
        self._answer = self.tokenizer.encode(text, add_special_tokens=False)
        return self._next()

    @override
    def decode(self, token_id: int) -> Tensor:
        self.decode_gate.pass_through()
        assert len(self._held) < self.context_tokens, "a token too many for the cache"
        if self.decoded == self.fail_decode_after:
            raise RuntimeError("scripted failure while decoding")
        self._held.append(token_id)
        self.decoded += 1
        return self._next()

    def _next(self) -> Tensor:
        logits = torch.zeros(self.vocab_size)
        token_id = self._answer.pop(0) if self._answer else min(self.stop_token_ids)
        logits[token_id] = 1000.0
        return logits

    @property
    @override
    def plan(self) -> MemoryPlan:
        return self.current_plan

    @override
    def change_plan(self, plan: MemoryPlan, on_progress: Callable[[int, int], None] | None = None) -> ResidencyReport:
        if on_progress is not None:
            on_progress(0, 2)
        self.change_gate.pass_through()
        if error := self.fail_change():
            raise error
        check_change(self.current_plan, plan)
        self.current_plan, self.context_tokens = plan, plan.context_tokens
        return RESIDENCY

    @override
    def recover(self) -> None:
        self.recovered += 1
        self.reset()

    @override
    def check_integrity(self) -> tuple[str, ...]:
        self.looked.release()
        return self.findings

    @override
    def residency(self) -> ResidencyReport:
        return RESIDENCY

    @override
    def slot_use(self) -> tuple[SlotUse, ...]:
        unused = SlotUse(layer=1, hits=0, misses=0, prompt_hits=0, prompt_copies=0)
        return (SlotUse(layer=0, hits=self.decoded, misses=0, prompt_hits=0, prompt_copies=len(self.prompts)), unused)

    @override
    def close(self) -> None:
        self.closed = True
