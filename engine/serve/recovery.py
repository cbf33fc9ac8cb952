"""After a request that failed: nothing of it is left, so that the next one is computed as if it had not been."""

from typing import TYPE_CHECKING

from engine.contract.errors import forget_locals

if TYPE_CHECKING:
    from engine.model.interface import LanguageModel


def recover(model: "LanguageModel", error: BaseException) -> None:
    """Let go of what the failed step computed, then forget every sequence and what may be half copied."""
    forget_locals(error)
    model.recover()
