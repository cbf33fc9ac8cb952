"""Errors of the serving engine, and words for those nobody foresaw. Tracebacks go to the log, never to people."""

from engine.contract.errors import SplitpinError, in_words

# torch's CPU allocator raises a plain RuntimeError; these are its words on Linux and Windows
_CPU_MEMORY_WORDS = ("can't allocate memory", "not enough memory")


class PortTakenError(SplitpinError):
    """Another program listens on the wished port, or the system does not give it out."""

    kind = "port"

    def __init__(self, *, port: int, words: str) -> None:
        super().__init__(
            f"Port {port} of 127.0.0.1 cannot be used: {words}.",
            "Choose another port, or 0 for any free one.",
            port=port,
        )


class AnswerFailedError(SplitpinError):
    """One request failed; the engine goes on."""

    kind = "answer_failed"


class AnswerMemoryError(AnswerFailedError):
    """Memory ran out while answering; the engine goes on."""

    kind = "out_of_memory"


class EngineFaultError(SplitpinError):
    """The engine hit an error that has no name yet."""

    kind = "internal"


class EngineMemoryError(EngineFaultError):
    """Memory ran out in a place that no plan foresaw."""

    kind = "out_of_memory"


def answer_problem(error: Exception) -> SplitpinError:
    """The error of one request, with a sentence."""
    if isinstance(error, SplitpinError):
        return error
    if _is_memory(error):
        return AnswerMemoryError(
            f"Memory ran out while answering: {in_words(error)}.",
            "Shorten the conversation, close other programs, or start the engine with a shorter context.",
        )
    return AnswerFailedError(
        f"The engine failed while answering: {in_words(error)}.",
        "Try again; the engine's log has the details.",
    )


def engine_problem(error: Exception) -> SplitpinError:
    """The error that ends the engine, with a sentence."""
    if isinstance(error, SplitpinError):
        return error
    if _is_memory(error):
        return EngineMemoryError(
            f"Memory ran out: {in_words(error)}.",
            "Close other programs, or choose a split that takes less memory.",
        )
    return EngineFaultError(
        f"The engine failed in a way it does not know: {in_words(error)}.",
        "The engine's log has the details.",
    )


def _is_memory(error: Exception) -> bool:
    text = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # torch's, which may not be imported yet
        or (isinstance(error, RuntimeError) and any(words in text for words in _CPU_MEMORY_WORDS))
    )
