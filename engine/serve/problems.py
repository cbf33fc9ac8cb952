"""Errors of the serving engine, and words for those nobody foresaw. Tracebacks go to the log, never to people."""

from engine.contract.errors import SplitpinError, in_words
from engine.serve.answer_errors import AnswerFailedError, AnswerMemoryError
from engine.serve.memory_problems import memory_problem


class PortTakenError(SplitpinError):
    """Another program listens on the wished port, or the system does not give it out."""

    kind = "port"

    def __init__(self, *, port: int, words: str) -> None:
        super().__init__(
            f"Port {port} of 127.0.0.1 cannot be used: {words}.",
            "Choose another port, or 0 for any free one.",
            port=port,
        )


class EngineFaultError(SplitpinError):
    """The engine hit an error that has no name yet."""

    kind = "internal"


class EngineMemoryError(EngineFaultError):
    """Memory ran out in a place that no plan foresaw; by the kind of the pool the launcher plans anew."""

    def __init__(self, found: AnswerMemoryError) -> None:
        fix = "Close other programs, or choose a split that takes less memory."
        super().__init__(found.sentence, fix, short_bytes=found.short_bytes, **found.numbers)
        self.kind = found.kind  # type: ignore[misc]


def answer_problem(error: Exception, doing: str = "while answering") -> SplitpinError:
    """The error of one request, with a sentence; `doing` is what it was about."""
    if isinstance(error, SplitpinError):
        return error
    return memory_problem(error, doing) or AnswerFailedError(
        f"The engine failed {doing}: {in_words(error)}.", "Try again; the engine's log has the details."
    )


def engine_problem(error: Exception) -> SplitpinError:
    """The error that ends the engine, with a sentence."""
    if isinstance(error, SplitpinError):
        return error
    if (found := memory_problem(error, "in the engine")) is not None:
        return EngineMemoryError(found)
    return EngineFaultError(
        f"The engine failed in a way it does not know: {in_words(error)}.",
        "The engine's log has the details.",
    )
