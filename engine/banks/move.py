"""Moves filled banks between tiers without reading their files again; every step can be undone until the last one.

Nothing falls down a tier here: a refusal undoes the whole change. So what may be refused comes first, while every bank
is still where it was: host blocks, then locks, then pins, as a refused pin spoils the later ones of a process. What may
not be had back, pins and locks, is let go last. VRAM holds never more than the larger of the two splits: layers that
leave it go before others arrive. Host memory holds the new blocks beside the old ones until the end, and one bank more
where layers exchange places.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.banks.bank import ExpertBank
from engine.banks.canary import pin_checked
from engine.banks.devices import Device
from engine.banks.place import Placement
from engine.contract.errors import SplitpinError
from engine.contract.ledger import VRAM_LAYERS
from engine.contract.plan import Tier
from engine.contract.seats import Assignment, assign, movers, spare_bytes
from engine.system.protocols import HostAllocator, HostBlock, PageLocker

_SPANS, _SPAN_BYTES = 8, 64 << 10  # what is compared of every copy


class CopyWrongError(SplitpinError):
    """Other bytes arrived than were sent."""

    kind = "self_test"


@dataclass(slots=True, eq=False)
class Seat:
    """Memory that holds a bank: a host block, or bytes in VRAM. `holds` is the layer whose bytes are in it."""

    bytes: Tensor
    block: HostBlock | None = None
    holds: int | None = None

    def drop(self) -> None:
        """Let go of the memory; a host block is given back."""
        self.bytes = torch.empty(0, dtype=torch.uint8)  # the last view of the block
        block, self.block = self.block, None
        if block is not None:
            block.free()


class TierChange:
    """One change of tiers. Call in this order:

    acquire_host, move_within, leave_device, (KV cache and slots are resized), enter_device, place, then commit; or
    close the undo stack that was given to each.
    """

    def __init__(
        self,
        banks: Mapping[int, ExpertBank],
        placements: dict[int, Placement],
        allocator: HostAllocator,
        device: Device,
        locker: PageLocker,
        tiers: Mapping[int, Tier],
    ) -> None:
        """`tiers`: what every layer is asked for now. One that is asked for the same as before stays, fallen or not.

        Only `place` changes the placements.
        """
        self._banks = banks
        self._placements = placements
        self._allocator = allocator
        self._device = device
        self._locker = locker
        self._asked = {layer: tier for layer, tier in tiers.items() if tier is not placements[layer].asked}
        moving = movers(((at.layer, at.asked, at.settled, at.nbytes) for at in placements.values()), tiers)
        self.moved = {mover.layer: mover.to_tier for mover in moving}
        self.assignments = assign(moving)
        self._seats = {layer: Seat(banks[layer].bytes, banks[layer].block, layer) for layer in self.moved}
        self._new: dict[int, Seat] = {}
        self.work_bytes = sum(item.work_bytes for item in self.assignments)
        self.on_bytes: Callable[[int], None] = lambda nbytes: None  # told of so many of them that are done
        self._spare: Seat | None = None
        self._asides: list[Seat] = []  # views of the spare

    # -- steps ----------------------------------------------------------------------------------------------------

    def acquire_host(self, undo: ExitStack) -> None:
        """Allocate the new host blocks, lock, pin.

        Raises:
            NotEnoughCommitError, AllocationRefusedError, LockRefusedError, PinRefusedError: refused.
        """
        undo.callback(self.forget)
        if spare := spare_bytes(self.assignments):
            self._spare = self._block(spare, undo)
        for item in self.assignments:
            for layer, tier in item.new.items():
                if tier is not Tier.VRAM:
                    self._new[layer] = self._block(item.nbytes, undo)
                    self.on_bytes(item.nbytes)
        for wanted in (Tier.LOCKED, Tier.PINNED):
            for item in self.assignments:
                for conversion in item.conversions:
                    if conversion.to_tier is wanted:
                        self._hold(self._seats[conversion.owner], wanted, undo)
                for layer, tier in item.new.items():
                    if tier is wanted:
                        self._hold(self._new[layer], wanted, undo)

    def move_within(self, undo: ExitStack) -> None:
        """Move the layers that need no VRAM but what others leave."""
        for item in self.assignments:
            if not item.new_on_device:
                self._move(item, undo)

    def leave_device(self, undo: ExitStack) -> None:
        """Give back the VRAM that nobody takes over."""
        for item in self.assignments:
            for layer, tier in item.released.items():
                if tier is Tier.VRAM:
                    seat, nbytes = self._seats[layer], item.nbytes
                    seat.bytes = torch.empty(0, dtype=torch.uint8)
                    self._device.release(nbytes, VRAM_LAYERS)
                    undo.callback(self._allocate, seat, nbytes)

    def enter_device(self, undo: ExitStack) -> None:
        """Allocate more VRAM and move the layers that need it.

        Raises:
            NotEnoughVramError: it is not there.
        """
        for item in self.assignments:
            for layer, tier in item.new.items():
                if tier is Tier.VRAM:
                    seat = self._new[layer] = Seat(torch.empty(0, dtype=torch.uint8))
                    self._allocate(seat, item.nbytes)
                    undo.callback(self._release, seat)
        for item in self.assignments:
            if item.new_on_device:
                self._move(item, undo)

    def place(self, undo: ExitStack) -> None:
        """Say where the layers are now."""
        for layer, tier in self._asked.items():
            before = self._placements[layer]
            undo.callback(self._placements.__setitem__, layer, before)
            self._placements[layer] = Placement(layer, tier, tier, before.nbytes)

    def commit(self) -> None:
        """Let go of what the old split held. Nothing of it can be refused."""
        for item in self.assignments:
            for conversion in item.conversions:
                self._let_go(self._seats[conversion.owner], conversion.from_tier)
            for layer, tier in item.released.items():
                if tier is not Tier.VRAM:
                    self._let_go(self._seats[layer], tier)
                    self._seats[layer].drop()
        spare = self._spare
        self.forget()
        if spare is not None:
            spare.drop()

    def forget(self) -> None:
        """Hold no view of any block: one would keep it from being given back."""
        for seat in (*self._seats.values(), *self._new.values(), *self._asides):
            seat.bytes = torch.empty(0, dtype=torch.uint8)
            seat.block = None

    # -- memory ---------------------------------------------------------------------------------------------------

    def _block(self, nbytes: int, undo: ExitStack) -> Seat:
        block = self._allocator.allocate(nbytes)
        seat = Seat(torch.empty(0, dtype=torch.uint8), block)
        undo.callback(self._undo_block, seat)
        block.populate()
        seat.bytes = torch.frombuffer(block.buffer, dtype=torch.uint8)
        return seat

    def _undo_block(self, seat: Seat) -> None:
        for aside in self._asides:
            if aside.block is seat.block:
                aside.bytes = torch.empty(0, dtype=torch.uint8)
        seat.drop()

    def _hold(self, seat: Seat, tier: Tier, undo: ExitStack) -> None:
        assert seat.block is not None
        if tier is Tier.PINNED:
            pin_checked(self._device, seat.block.address, seat.bytes)
        else:
            self._locker.lock(seat.block.address, seat.block.nbytes)
        undo.callback(self._let_go, seat, tier)
        self.on_bytes(seat.bytes.nbytes)

    def _let_go(self, seat: Seat, tier: Tier) -> None:
        assert seat.block is not None
        if tier is Tier.PINNED:
            self._device.unpin(seat.block.address)
        elif tier is Tier.LOCKED:
            self._locker.unlock(seat.block.address, seat.block.nbytes)

    def _allocate(self, seat: Seat, nbytes: int) -> None:
        seat.bytes, seat.holds = self._device.allocate(nbytes, VRAM_LAYERS), None

    def _release(self, seat: Seat) -> None:
        nbytes = seat.bytes.nbytes
        seat.bytes = torch.empty(0, dtype=torch.uint8)
        self._device.release(nbytes, VRAM_LAYERS)

    # -- copies ---------------------------------------------------------------------------------------------------

    def _move(self, item: Assignment, undo: ExitStack) -> None:
        """Bring every bank to its seat; a ring is opened by letting one bank stand aside."""
        targets = {layer: self._seats[owner] for layer, owner in item.takes.items() if owner != layer}
        targets |= {layer: self._new[layer] for layer in item.new}
        sits = {layer: self._seats[layer] for layer in targets}
        while targets:
            taken = set(map(id, sits.values()))
            layer = next((layer for layer, seat in targets.items() if id(seat) not in taken), None)
            if layer is None:
                layer = next(iter(targets))
                assert self._spare is not None
                aside = Seat(self._spare.bytes[: item.nbytes], self._spare.block)
                self._asides.append(aside)
                self._copy(self._banks[layer], sits[layer], aside, undo)
                sits[layer] = aside
                continue
            self._copy(self._banks[layer], sits.pop(layer), targets.pop(layer), undo)
            self.on_bytes(item.nbytes)

    def _copy(self, bank: ExpertBank, source: Seat, target: Seat, undo: ExitStack) -> None:
        undo.callback(self._transfer, bank, target, source)
        self._transfer(bank, source, target)

    def _transfer(self, bank: ExpertBank, source: Seat, target: Seat) -> None:
        """Copy, unless the bytes are there still: what nobody has written over is as good as it was."""
        if target.holds != bank.layer:
            target.holds = None
            if target.block is None:
                self._device.copy_in(target.bytes, source.bytes, self._device.mark())
                self._device.synchronize()
            else:
                target.bytes.copy_(source.bytes)
            _compare(bank.layer, source.bytes, target.bytes)
            target.holds = bank.layer
        bank.sit(target.bytes, target.block)


def _compare(layer: int, sent: Tensor, arrived: Tensor) -> None:
    """Compare some spans, the first and the last among them.

    Raises:
        CopyWrongError: they differ.
    """
    last = max(len(sent) - _SPAN_BYTES, 0)
    for number in range(_SPANS):
        start = last * number // (_SPANS - 1)
        if not torch.equal(sent[start : start + _SPAN_BYTES].cpu(), arrived[start : start + _SPAN_BYTES].cpu()):
            raise CopyWrongError(
                f"Layer {layer} did not arrive whole where it was moved to: bytes differ from {start:,} on.",
                "Start the engine again; if it happens again, test the memory of this PC.",
                layer=layer,
                offset_bytes=start,
            )
