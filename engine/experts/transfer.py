"""The GPU buffers for experts of pinned layers, and the copies into them: expert n + 1 travels while n computes."""

from collections.abc import Iterator

from torch import Tensor

from engine.banks.bank import ExpertBank
from engine.banks.devices import Device, Mark
from engine.contract.errors import PlanMismatchError
from engine.experts.slots import ExpertId, SlotTable

EXPERT_SLOTS = "expert slots"  # purpose in the device's ledger, as in the contract


class SlotPool:
    """`slots` records in device memory, allocated once and shared by all pinned layers."""

    def __init__(self, slots: int, record_bytes: int, device: Device) -> None:
        """Allocate the buffers.

        Raises:
            NotEnoughVramError: they do not fit.
            PlanMismatchError: there is no slot.
        """
        if slots < 1:
            raise PlanMismatchError("Pinned layers need at least one expert slot.", "Plan the start again.")
        self.table = SlotTable(slots)
        self._record_bytes = record_bytes
        self._device = device
        self._memory = device.allocate(slots * record_bytes, EXPERT_SLOTS)
        ready = device.mark()  # the device may still be zeroing the memory
        self._free_after: list[Mark | None] = [ready] * slots  # the last computation that reads a slot
        self._filled_at: list[Mark | None] = [None] * slots  # the copy that fills it

    def stream(self, bank: ExpertBank, experts: list[int]) -> Iterator[Tensor]:
        """Records of these experts on the device, in this order; each is valid until the next one is asked for.

        With two slots or more the next missing expert is copied while the caller computes with this one.
        """
        ahead = self.table.slots > 1
        slots: dict[int, int] = {}
        for position, expert in enumerate(experts):
            slot = slots.pop(expert) if expert in slots else self._fetch(bank, expert)
            if ahead and position + 1 < len(experts):
                following = experts[position + 1]
                slots[following] = self._fetch(bank, following)
            self._device.wait(self._filled_at[slot])
            yield self._slot(slot, bank)
            self._free_after[slot] = self._device.mark()

    def _fetch(self, bank: ExpertBank, expert: int) -> int:
        placed = self.table.acquire(ExpertId(bank.layer, expert))
        if not placed.hit:
            try:
                self._filled_at[placed.slot] = self._device.copy_in(
                    self._slot(placed.slot, bank), bank.record(expert), self._free_after[placed.slot]
                )
            except BaseException:
                self.table.forget(ExpertId(bank.layer, expert))
                raise
        return placed.slot

    def _slot(self, slot: int, bank: ExpertBank) -> Tensor:
        """As much of a slot as this layer's records take; slots hold the largest record of the model."""
        start = slot * self._record_bytes
        return self._memory[start : start + bank.layout.record.bytes]

    def close(self) -> None:
        """Give the buffers back."""
        self._device.synchronize()
        self._device.release(self._memory.nbytes, EXPERT_SLOTS)
        self._memory = self._memory.new_empty(0)
