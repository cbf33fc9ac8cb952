"""What generation asks of a loaded model. One sequence at a time; token ids in, logits out."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from engine.contract.plan import MemoryPlan
from engine.contract.residency import ResidencyReport, SlotUse


class LanguageModel(Protocol):
    """A loaded model with its KV cache; implemented by engine/model/loaded.py, faked in tests."""

    name: str
    tokenizer: Any  # transformers' tokenizer, chat template included
    context_tokens: int
    vocab_size: int
    stop_token_ids: frozenset[int]
    generation_defaults: dict[str, float]  # temperature, top_p, top_k, ... as the model says

    @property
    def cached_tokens(self) -> int:
        """Tokens of the current sequence in the KV cache now."""
        ...

    def reset(self) -> None:
        """Forget all sequences; the cache keeps its memory."""
        ...

    def begin(self, prompt: Sequence[int]) -> int:
        """Turn to a prompt of at most `context_tokens`; what is kept of other sequences is used for it and stays if it
        has room. How many first tokens are there already: never all, the last one has to be computed for its logits.
        """
        ...

    def end(self) -> None:
        """The request is over, whatever became of it: keep what a later one can use."""
        ...

    def prefill(
        self, token_ids: Sequence[int], *, on_progress: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> Tensor:
        """Append the prompt in chunks and return the logits of the last position, [V] float32 on the CPU.

        Raises:
            ContextTooLongError: the prompt does not fit the cache; nothing was computed.
            GenerationCancelledError: `cancelled` said so between two chunks.
        """
        ...

    def decode(self, token_id: int) -> Tensor:
        """Append one token and return the next logits, [V] float32 on the CPU."""
        ...

    @property
    def plan(self) -> MemoryPlan:
        """The plan that holds now."""
        ...

    def change_plan(self, plan: MemoryPlan, on_progress: Callable[[int, int], None] | None = None) -> ResidencyReport:
        """Take another split without loading again; the sequence is forgotten. What every layer has then.

        `on_progress` is told the bytes that are done and those in all, once it is known that there is room to move.

        Raises:
            PlanMismatchError, NotEnoughMemoryError, RefusedError, MovedWrongError: not possible; all is as before.
            ChangeNotUndoneError: the model cannot be used any more.
        """
        ...

    def recover(self) -> None:
        """After a request that failed in the middle: forget all sequences and what may be half copied."""
        ...

    def check_integrity(self) -> tuple[str, ...]:
        """Whether the books agree, in milliseconds: sentences about what does not, () if all does."""
        ...

    def residency(self) -> ResidencyReport:
        """What every layer got."""
        ...

    def slot_use(self) -> tuple[SlotUse, ...]:
        """How often experts of each pinned layer were wanted since the slots exist."""
        ...

    def close(self) -> None:
        """Unregister, unlock and free everything."""
        ...


class GenerationCancelledError(Exception):
    """Raised inside a request that nobody waits for any more."""
