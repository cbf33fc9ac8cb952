"""Moves a filled bank into its tier; on a refusal one tier down: pinned, locked, pageable.

VRAM has no tier below it here: a bank that does not fit there means the plan is wrong, and the load fails.
"""

from dataclasses import dataclass, replace

from engine.banks.bank import ExpertBank
from engine.banks.canary import pin_checked
from engine.banks.devices import Device
from engine.contract.ledger import VRAM_LAYERS
from engine.contract.plan import Tier
from engine.contract.units import gib
from engine.system.protocols import LockRefusedError, PageLocker, PinRefusedError


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one layer's bank ended up, and the refusals in words if that is not the tier it was asked for."""

    layer: int
    asked: Tier
    settled: Tier
    nbytes: int
    cause: str | None = None


def settle(bank: ExpertBank, asked: Tier, device: Device, locker: PageLocker) -> Placement:
    """Put a filled bank where the plan wants it. One thread, after the fill: registering untouched pages is slow.

    Raises:
        NotEnoughVramError: the device cannot hold it.
    """
    nbytes = bank.layout.nbytes if bank.block is None else bank.block.nbytes
    if asked is Tier.VRAM:
        _to_device(bank, device)
        return Placement(bank.layer, asked, asked, nbytes)
    causes: list[str] = []
    for tier in _downwards(asked):
        try:
            _hold(bank, tier, device, locker)
        except (PinRefusedError, LockRefusedError) as refusal:
            causes.append(refusal.sentence)
            continue
        return Placement(bank.layer, asked, tier, nbytes, " ".join(causes) or None)
    raise AssertionError("pageable memory is never refused")


def step_down(bank: ExpertBank, before: Placement, device: Device, locker: PageLocker) -> Placement:
    """Take the pin of a settled layer back, and settle it below."""
    assert bank.block is not None
    device.unpin(bank.block.address)
    after = settle(bank, Tier.LOCKED, device, locker)
    words = f"{gib(after.nbytes)} were pinned and given back: the driver refused another layer and needs room to work."
    cause = words if after.cause is None else f"{words} {after.cause}"
    return replace(before, settled=after.settled, cause=cause)


def unsettle(bank: ExpertBank, settled: Tier | None, device: Device, locker: PageLocker) -> None:
    """Undo `settle` and free the memory; `settled` None: the bank had not got that far."""
    if settled is Tier.VRAM:
        device.release(bank.bytes.nbytes, VRAM_LAYERS)
    elif bank.block is not None and bank.block.nbytes:
        if settled is Tier.PINNED:
            device.unpin(bank.block.address)
        elif settled is Tier.LOCKED:
            locker.unlock(bank.block.address, bank.block.nbytes)
    bank.free()


def _to_device(bank: ExpertBank, device: Device) -> None:
    on_device = device.allocate(bank.bytes.nbytes, VRAM_LAYERS)
    device.copy_in(on_device, bank.bytes, device.mark())  # the mark: not before the device has zeroed its memory
    device.synchronize()
    bank.move_to(on_device)  # the host copy goes at once: the peak of a load is all banks plus one layer


def _downwards(tier: Tier) -> list[Tier]:
    chain = [Tier.PINNED, Tier.LOCKED, Tier.PAGEABLE]
    return chain[chain.index(tier) :]


def _hold(bank: ExpertBank, tier: Tier, device: Device, locker: PageLocker) -> None:
    if bank.block is None or bank.block.nbytes == 0:
        return
    if tier is Tier.PINNED:
        pin_checked(device, bank.block.address, bank.bytes)
    elif tier is Tier.LOCKED:
        locker.lock(bank.block.address, bank.block.nbytes)
