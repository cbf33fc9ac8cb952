"""Host memory that torch asked for and did not get, told with what the system has left."""

from collections.abc import Callable

from engine.contract.errors import NotEnoughCommitError, NotEnoughRamError, SplitpinError, in_words
from engine.system.protocols import AllocationRefusedError
from engine.system.select import host_memory_left

_FIX = "Choose a shorter context, or close other programs."


def host_refusal(
    nbytes: int,
    what: str,
    cause: RuntimeError,
    left: Callable[[], tuple[int, int | None]] = host_memory_left,
) -> SplitpinError:
    """The error to raise; torch itself only says that it could not allocate.

    Args:
        what: the purpose, as the ledger names it.
        left: reads RAM that is available and commit that is left (None: not limited), in bytes.

    Returns:
        NotEnoughCommitError or NotEnoughRamError, whichever has fewer than `nbytes` left; AllocationRefusedError with
        the words of torch where neither has.
    """
    ram_left, commit_left = left()
    named = what[:1].upper() + what[1:]
    if commit_left is not None and commit_left < nbytes:
        return NotEnoughCommitError(needed_bytes=nbytes, available_bytes=commit_left, fix=_FIX, what=named)
    if ram_left < nbytes:
        return NotEnoughRamError(needed_bytes=nbytes, available_bytes=ram_left, fix=_FIX, what=named)
    return AllocationRefusedError(asked_bytes=nbytes, code=None, words=in_words(cause))
