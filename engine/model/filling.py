"""Fills the banks of all layers, one ahead: while one is pinned, locked or copied to the GPU, the next is read."""

from collections.abc import Iterator, Mapping, Sequence

from engine.banks.arena import BankArena
from engine.banks.bank import BankLayout, ExpertBank
from engine.checkpoint.loader import TensorReader
from engine.checkpoint.reader_threads import Reading
from engine.model.expert_map import ExpertMap


def filled_banks(
    order: Sequence[int],
    arena: BankArena,
    layouts: Mapping[int, BankLayout],
    experts: ExpertMap,
    reader: TensorReader,
) -> Iterator[ExpertBank]:
    """The filled banks of these layers, in this order, to be settled one by one by the caller.

    The readers always have the next bank to go on with: at most one more is in memory than is handed out or waited for.
    After one that has to be converted it waits until that is done, so that three are never in memory at a time.

    Raises:
        ModelFileError: a file ended early or could not be read.
        NotEnoughCommitError, AllocationRefusedError: the system has no memory for a bank.
        LoadCancelledError: the load was told to stop.
    """

    def begin(layer: int) -> tuple[ExpertBank, Reading]:
        bank = arena.create(layer, layouts[layer])
        return bank, experts.start(bank, reader)

    ahead = begin(order[0]) if order else None
    for following in (*order[1:], None):
        if ahead is None:
            return
        bank, reading = ahead
        ahead = None
        if following is not None and not experts.layers[bank.layer].conversions:
            ahead = begin(following)
        experts.finish(bank, reading, reader)
        if following is not None and ahead is None:
            ahead = begin(following)
        yield bank
