"""After a request that failed: nothing of it is left, so that the next one is computed as if it had not been."""

import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.model.interface import LanguageModel


def recover(model: "LanguageModel", error: BaseException) -> None:
    """Let go of what the failed step computed, then forget every sequence and what may be half copied."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)  # their variables hold the tensors of the step
        cause = cause.__cause__ or cause.__context__
    model.recover()
