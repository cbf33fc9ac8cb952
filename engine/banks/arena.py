"""All banks of one model: one host block per layer, from allocation to the last byte given back."""

from collections.abc import Mapping

from engine.banks.bank import BankLayout, ExpertBank
from engine.banks.devices import Device
from engine.banks.move import TierChange
from engine.banks.place import Placement, settle, step_down, unsettle
from engine.contract.plan import Tier
from engine.system.protocols import HostAllocator, PageLocker


class BankArena:
    """Creates, places and frees the banks. What it did not give back, `close` gives back."""

    def __init__(self, layout: BankLayout, allocator: HostAllocator, device: Device, locker: PageLocker) -> None:
        self.layout = layout
        self.allocator = allocator
        self._device = device
        self._locker = locker
        self.banks: dict[int, ExpertBank] = {}
        self._placements: dict[int, Placement] = {}

    @property
    def placements(self) -> tuple[Placement, ...]:
        """What settled so far, by layer."""
        return tuple(self._placements[layer] for layer in sorted(self._placements))

    def create(self, layer: int, layout: BankLayout | None = None) -> ExpertBank:
        """Allocate the host block of one layer; `layout` where it is not the one all layers have.

        Raises:
            NotEnoughCommitError, AllocationRefusedError: the system refused.
            PlanMismatchError: the block has another size than planned.
        """
        own = layout or self.layout
        block = self.allocator.allocate(own.nbytes)
        try:
            bank = ExpertBank(layer, own, block)
        except BaseException:
            block.free()
            raise
        self.banks[layer] = bank
        return bank

    def settle(self, bank: ExpertBank, asked: Tier) -> Placement:
        """Move a filled bank into its tier, or below it on a refusal.

        Raises:
            NotEnoughVramError: the device cannot hold it.
        """
        placement = self._placements[bank.layer] = settle(bank, asked, self._device, self._locker)
        return placement

    def give_back(self) -> list[Placement]:
        """After a refused pin: unpin the last layers as far as the driver needs room, and say where they are now."""
        moved: list[Placement] = []
        for placement in reversed(list(self._placements.values())):
            if placement.settled is Tier.PINNED and self._device.owes(placement.nbytes):
                after = step_down(self.banks[placement.layer], placement, self._device, self._locker)
                self._placements[placement.layer] = after
                moved.append(after)
        return moved

    def change(self, tiers: Mapping[int, Tier]) -> TierChange:
        """Begin to move layers to other tiers; `tiers` names the tier every layer is asked for now."""
        return TierChange(self.banks, self._placements, self.allocator, self._device, self._locker, tiers)

    def close(self) -> None:
        """Unregister, unlock and free everything. Nobody may compute from the banks any more."""
        for layer, bank in list(self.banks.items()):
            placement = self._placements.pop(layer, None)
            unsettle(bank, placement.settled if placement else None, self._device, self._locker)
            del self.banks[layer]
