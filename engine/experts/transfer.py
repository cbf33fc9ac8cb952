"""The GPU buffers for experts of pinned layers, and the copies into them: expert n + 1 travels while n computes."""

from collections.abc import Iterator

from torch import Tensor

from engine.banks.bank import ExpertBank
from engine.banks.devices import Device, Mark
from engine.contract.errors import PlanMismatchError
from engine.contract.ledger import EXPERT_SLOTS
from engine.experts.ring import TransferRing
from engine.experts.slots import ExpertId, SlotTable


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
        for expert in experts:
            self.table.touch(ExpertId(bank.layer, expert))  # or the first miss could throw out what comes next
        slots: dict[int, int] = {}
        for position, expert in enumerate(experts):
            slot = slots.pop(expert) if expert in slots else self._fetch(bank, expert)
            if ahead and position + 1 < len(experts):
                following = experts[position + 1]
                slots[following] = self._fetch(bank, following)
            yield from self._use(slot, bank)

    def stream_prompt(
        self, bank: ExpertBank, experts: list[int], ring: TransferRing, *, gap: int = 0
    ) -> Iterator[Tensor]:
        """The same for many tokens: what is in a slot stays there, the rest takes free slots or passes the ring."""
        uses = self.table.uses[bank.layer]
        at: dict[int, int] = {}
        for expert in experts:
            name = ExpertId(bank.layer, expert)
            slot = self.table.find(name)
            if slot is not None:
                uses.prompt_hits += 1
            elif (slot := self.table.offer(name)) is not None:
                uses.prompt_copies += 1
                self._fill(slot, bank, name)
            if slot is not None:
                at[expert] = slot
        rest = [expert for expert in experts if expert not in at]
        uses.prompt_copies += len(rest)
        passing = ring.stream(bank, rest, staged=False, gap=gap)
        try:
            for expert in experts:
                if expert in at:
                    yield from self._use(at[expert], bank)
                else:
                    yield next(passing)
        finally:
            passing.close()  # it notes how far the computation has got

    def missing(self, layer: int, experts: list[int]) -> int:
        """How many of them would have to be copied."""
        return sum(self.table.find(ExpertId(layer, expert)) is None for expert in experts)

    def _use(self, slot: int, bank: ExpertBank) -> Iterator[Tensor]:
        self._device.wait(self._filled_at[slot])
        try:
            yield self._slot(slot, bank)
        finally:
            self._free_after[slot] = self._device.mark()

    def _fetch(self, bank: ExpertBank, expert: int) -> int:
        name = ExpertId(bank.layer, expert)
        placed = self.table.acquire(name)
        if not placed.hit:
            self._fill(placed.slot, bank, name)
        return placed.slot

    def _fill(self, slot: int, bank: ExpertBank, name: ExpertId) -> None:
        try:
            self._filled_at[slot] = self._device.copy_in(
                self._slot(slot, bank), bank.record(name.expert), self._free_after[slot]
            )
        except BaseException:
            self.table.forget(name)
            raise

    def _slot(self, slot: int, bank: ExpertBank) -> Tensor:
        """As much of a slot as this layer's records take; slots hold the largest record of the model."""
        start = slot * self._record_bytes
        return self._memory[start : start + bank.layout.record.bytes]

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return self._memory.nbytes

    def close(self) -> None:
        """Give the buffers back."""
        self._device.synchronize()
        self._device.release(self._memory.nbytes, EXPERT_SLOTS)
        self._memory = self._memory.new_empty(0)
