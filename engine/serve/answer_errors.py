"""What a failed request is told. The engine goes on."""

from typing import ClassVar

from engine.contract.errors import SplitpinError


class AnswerFailedError(SplitpinError):
    """One request failed; the engine goes on."""

    kind = "answer_failed"


class AnswerMemoryError(AnswerFailedError):
    """Memory ran out while answering; the subclasses say which, with the kinds that a plan has for these pools."""

    pool_words: ClassVar[str] = "Memory"
    fix_words: ClassVar[str] = (
        "Shorten the conversation, close other programs, or start the engine with a shorter context."
    )


class AnswerVramError(AnswerMemoryError):
    kind = "vram"
    pool_words = "GPU memory"
    fix_words = "Close programs that use the GPU, shorten the conversation, or keep fewer layers in VRAM."


class AnswerPinError(AnswerMemoryError):
    kind = "pin_refused"
    pool_words = "Pinned memory"
    fix_words = "Pin fewer layers, or lower the limit for pinned memory."


class AnswerCommitError(AnswerMemoryError):
    kind = "commit"
    pool_words = "Committed memory (RAM and page file)"
    fix_words = "Close other programs, or make the page file larger."


class AnswerRamError(AnswerMemoryError):
    kind = "ram"
    pool_words = "RAM"
    fix_words = "Close other programs, or choose a split that keeps fewer layers in RAM."
