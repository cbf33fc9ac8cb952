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

    At most one bank more than those handed out is in memory. What has to be converted waits until the caller comes
    back, so that its second copy is never there beside a bank on its way to the GPU.

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
        experts.finish(bank, reading, reader)
        ahead = None if following is None else begin(following)
        yield bank
