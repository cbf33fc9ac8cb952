"""Do the books of a loaded model agree? What each part holds is added up and compared with the ledger of the device.

Cheap enough for every idle half minute: sums over some hundred objects, no memory is read.
"""

from collections.abc import Iterator
from typing import Any

from engine.banks.devices import Device
from engine.contract.estimate import slot_bytes
from engine.contract.ledger import (
    EXPERT_SLOTS,
    KV_CACHE,
    STATE,
    TRANSFER_RING,
    UNPACKED_KV,
    VRAM_LAYERS,
    WEIGHTS,
)
from engine.contract.plan import Tier
from engine.model.parts import Parts


def check_integrity(parts: Parts, cached_tokens: int) -> tuple[str, ...]:
    """What does not agree, in sentences with numbers; nothing is changed.

    Args:
        cached_tokens: of the current sequence, as whoever computes counts them.
    """
    return tuple([*_banks(parts), *_device(parts), *_slots(parts), *_cache(parts, cached_tokens)])


def _banks(parts: Parts) -> Iterator[str]:
    """Every bank is where its placement says, and the drivers hold what the placements say."""
    arena = parts.arena
    placed = {item.layer: item for item in arena.placements}
    if placed.keys() != arena.banks.keys():
        odd = sorted(arena.banks.keys() ^ placed.keys())
        yield f"Layers {odd} have a bank without a tier, or a tier without a bank."
    for layer, item in placed.items():
        bank = arena.banks.get(layer)
        if bank is None:
            continue
        held = bank.bytes.nbytes
        on_host = bank.block is not None
        if on_host is (item.settled is Tier.VRAM) or held != item.nbytes:
            where, tier = "RAM" if on_host else "VRAM", item.settled.value
            yield f"Layer {layer} holds {held:,} B of {where}; {item.nbytes:,} B, {tier}, are on the books."
        attached = parts.layers.get(layer)
        if attached is None or attached.bank is not bank:
            yield f"Layer {layer} computes from another bank than it has."
    pinned = sum(item.nbytes for item in placed.values() if item.settled is Tier.PINNED)
    if (registered := parts.device.pinned_bytes) != pinned + parts.pinned_beside_bytes:
        yield f"{registered:,} B are pinned; {pinned + parts.pinned_beside_bytes:,} B are on the books."


def _device(parts: Parts) -> Iterator[str]:
    """Every line of the device's ledger is what its owner holds; what is used and what is free is all there is."""
    device, books = parts.device, parts.device.allocated
    cache = parts.cache
    owned = {
        KV_CACHE: 0 if cache is None else cache.nbytes,
        UNPACKED_KV: 0 if cache is None else cache.unpacked_nbytes,
        STATE: 0 if cache is None else cache.state_nbytes,
        EXPERT_SLOTS: 0 if parts.slots is None else parts.slots.nbytes,
        TRANSFER_RING: 0 if parts.ring is None else parts.ring.nbytes,
        VRAM_LAYERS: sum(bank.bytes.nbytes for bank in parts.arena.banks.values() if bank.block is None),
        **parts.reserves(parts.plan),
    }
    for what, held in owned.items():
        if books.get(what, 0) != held:
            yield f"{what[:1].upper()}{what[1:]}: {held:,} B are held, {books.get(what, 0):,} B are on the books."
    for what in books.keys() - owned.keys() - {WEIGHTS}:
        yield f"{books[what]:,} B of {what} are on the books; nobody holds them."
    yield from _sum(device)


def _sum(device: Device) -> Iterator[str]:
    room = device.room
    if room is None:
        return
    used = sum(device.allocated.values())
    if used + room.free_bytes != room.total_bytes:
        yield (
            f"{used:,} B of device memory are used and {room.free_bytes:,} B are free; "
            f"that is not {room.total_bytes:,} B."
        )


def _slots(parts: Parts) -> Iterator[str]:
    """Every slot is free or holds one expert of a pinned layer."""
    if parts.slots is None:
        return
    table, model = parts.slots.table, parts.plan.model
    held = table.held()
    if not 0 <= len(set(held.values())) == len(held) <= table.slots or len(held) + table.free != table.slots:
        yield f"{len(held)} slots are taken and {table.free} are free; there are {table.slots}."
    if outside := [slot for slot in held.values() if not 0 <= slot < table.slots]:
        yield f"Slots {outside} do not exist; there are {table.slots}."
    pinned = {item.layer for item in parts.arena.placements if item.settled is Tier.PINNED}
    if foreign := sorted({name.layer for name in held} - pinned):
        yield f"Slots hold experts of layers {foreign}, which are not pinned."
    if wrong := [name for name in held if not 0 <= name.expert < model.experts.n_experts]:
        yield f"Slots hold experts {wrong[:3]} of {model.experts.n_experts}."
    planned = table.slots * slot_bytes(model)
    if parts.slots.nbytes != planned:
        yield f"{table.slots} slots take {parts.slots.nbytes:,} B; the plan counts {planned:,} B."


def _cache(parts: Parts, cached_tokens: int) -> Iterator[str]:
    """Every layer of the KV cache has seen the same tokens, and no more than there is room for."""
    if parts.cache is None:
        yield "There is no KV cache."
        return
    layers: list[Any] = [layer for layer in parts.cache.layers if hasattr(layer, "seen")]
    seen = {layer.seen for layer in layers if layer.keys.numel()}  # others read what an earlier layer keeps
    if len(seen) > 1 or (seen and seen != {cached_tokens}):
        yield f"Layers of the KV cache have seen {sorted(seen)} tokens; {cached_tokens} are on the books."
    if cached_tokens > parts.plan.context_tokens:
        yield f"{cached_tokens} tokens are in a KV cache for {parts.plan.context_tokens}."
