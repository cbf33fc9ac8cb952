"""Errors that speak to the user: what happened, the numbers, the smallest fix.

Every error that can reach a person is a `SplitpinError`. It crosses processes as a `Problem`.
"""

import traceback
from typing import ClassVar

from pydantic import Field

from engine.contract.record import Record
from engine.contract.units import gib

Number = int | float | str | None


class FixOption(Record):
    """One single change that was tried and works. `change` names it; `numbers` are what the sentence says."""

    change: str = Field(description="context_tokens, vram_layers, pinned_layers, end_process, expert_format ...")
    sentence: str
    numbers: dict[str, Number] = Field(default_factory=dict)


class Problem(Record):
    """A `SplitpinError` as data: `error` in the JSON of the command line, `problem` in events."""

    kind: str
    sentence: str
    fix: str
    short_bytes: int | None = None
    numbers: dict[str, Number] = Field(default_factory=dict)
    fixes: tuple[FixOption, ...] = Field(default=(), description="single changes that work; the first one is `fix`")


class SplitpinError(Exception):
    """Base of all errors a user may see. `kind` is stable and machine-readable."""

    kind: ClassVar[str] = "error"

    def __init__(self, sentence: str, fix: str, *, short_bytes: int | None = None, **numbers: Number) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.fix = fix
        self.short_bytes = short_bytes
        self.numbers = numbers
        self.fixes: tuple[FixOption, ...] = ()

    @property
    def problem(self) -> Problem:
        """The same as a record."""
        return Problem(
            kind=self.kind,
            sentence=self.sentence,
            fix=self.fix,
            short_bytes=self.short_bytes,
            numbers=self.numbers,
            fixes=self.fixes,
        )


class ReportedError(SplitpinError):
    """A problem that another process reported; keeps its kind."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.sentence, problem.fix, short_bytes=problem.short_bytes, **problem.numbers)
        self.kind = problem.kind  # type: ignore[misc]
        self.fixes = problem.fixes


def forget_locals(error: BaseException | None) -> None:
    """Empty the frames an error came through: their variables may be views of memory that is to be given back."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def in_words(error: Exception) -> str:
    """The first line of a library's error with its type, without the full stop: part of a sentence of ours."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.: ')}" if lines else type(error).__name__


class UsageError(SplitpinError):
    """The command line or a file the user wrote cannot be understood."""

    kind = "usage"


class ModelFolderError(SplitpinError):
    """The folder holds no usable model."""

    kind = "model_folder"


class ModelFileError(SplitpinError):
    """A weight file is missing, truncated or not what its header says."""

    kind = "model_file"


class UnsupportedModelError(SplitpinError):
    """The engine does not know this model type."""

    kind = "architecture"


class CannotEstimateError(SplitpinError):
    """A fact that the byte arithmetic needs is missing or of an unknown kind."""

    kind = "cannot_estimate"


class NotEnoughMemoryError(SplitpinError):
    """A wish does not fit a pool. Subclasses name the pool."""

    pool_words: ClassVar[str] = "memory"

    def __init__(self, *, needed_bytes: int, available_bytes: int, fix: str, what: str = "This split") -> None:
        super().__init__(
            f"{what} needs {gib(needed_bytes)} of {self.pool_words}; {gib(max(available_bytes, 0))} can be used.",
            fix,
            short_bytes=needed_bytes - available_bytes,
            needed_bytes=needed_bytes,
            available_bytes=available_bytes,
        )


class NotEnoughVramError(NotEnoughMemoryError):
    """VRAM of the GPU that the engine uses."""

    kind = "vram"
    pool_words = "GPU memory"


class NotEnoughRamError(NotEnoughMemoryError):
    """RAM: everything that is resident on the host."""

    kind = "ram"
    pool_words = "RAM"


class NotEnoughCommitError(NotEnoughMemoryError):
    """What the system can promise; on Windows allocation fails at this limit even where RAM is free."""

    kind = "commit"
    pool_words = "committed memory (RAM and page file)"


class PinQuotaError(NotEnoughMemoryError):
    """What the driver lets one process pin."""

    kind = "pin_quota"
    pool_words = "pinned memory"


class LockLimitError(NotEnoughMemoryError):
    """What the system lets one process lock."""

    kind = "lock_limit"
    pool_words = "locked memory"


class ContextTooLongError(SplitpinError):
    """A prompt is longer than the KV cache. HTTP 400 with code `context_length_exceeded`."""

    kind = "context_length_exceeded"

    def __init__(self, *, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens} tokens; the KV cache holds {context_tokens}.",
            "Shorten the conversation, or start the engine with a longer context.",
            prompt_tokens=prompt_tokens,
            context_tokens=context_tokens,
        )


class PlanMismatchError(SplitpinError):
    """The engine would allocate other bytes than the plan says: a fault of Splitpin or a changed model folder."""

    kind = "plan_mismatch"


class WireError(SplitpinError):
    """The other process speaks another version or no protocol at all."""

    kind = "wire"


class EngineStoppedError(SplitpinError):
    """The engine ended without being asked to."""

    kind = "engine_stopped"


class OrphanHoldsMemoryError(SplitpinError):
    """Start refused: an engine of an earlier run still holds memory."""

    kind = "orphan"
