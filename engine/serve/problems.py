"""Errors of the serving engine, and words for those nobody foresaw. Tracebacks go to the log, never to people."""

from engine.contract.errors import SplitpinError, in_words
from engine.serve.answer_errors import AnswerFailedError
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
    """Memory ran out in a place that no plan foresaw."""

    kind = "out_of_memory"


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
    if memory_problem(error, "") is not None:
        return EngineMemoryError(
            f"Memory ran out: {in_words(error)}.",
            "Close other programs, or choose a split that takes less memory.",
        )
    return EngineFaultError(
        f"The engine failed in a way it does not know: {in_words(error)}.",
        "The engine's log has the details.",
    )
