"""The way of prompts to the GPU: two halves of device memory, one filled while the other is computed from.

Records of pinned layers are copied straight from their bank. Those of locked layers go through a pinned side of the
same size, for a GPU copies from ordinary memory slowly and not beside its work. Slots are not touched: one prompt would
throw out what decoding uses again and again.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.banks.bank import ExpertBank
from engine.banks.devices import Device, Mark
from engine.contract.errors import PlanMismatchError
from engine.contract.ledger import TRANSFER_RING
from engine.experts.copies import runs
from engine.system.protocols import HostAllocator, HostBlock, PinRefusedError

HALVES = 2


@dataclass(slots=True)
class _Piece:
    """What one half holds: copies (first expert, count), and the wanted experts among them."""

    copies: list[tuple[int, int]]
    experts: list[int]


class TransferRing:
    """`records` records in device memory, and as many pinned ones in host memory where layers are not pinned."""

    def __init__(self, records: int, record_bytes: int, device: Device, allocator: HostAllocator | None = None) -> None:
        """Allocate; with `allocator` the pinned side too. If it may not be pinned it is given back: see `cause`.

        Raises:
            NotEnoughVramError, NotEnoughCommitError, AllocationRefusedError: the memory is not there.
            PlanMismatchError: fewer than one record a half.
        """
        if records < HALVES:
            raise PlanMismatchError(f"A transfer ring needs {HALVES} records at least.", "Plan the start again.")
        self._half_bytes = records // HALVES * record_bytes
        self._device = device
        self._memory = device.allocate(records * record_bytes, TRANSFER_RING)
        ready = device.mark()  # the device may still be zeroing the memory
        self._free_after: list[Mark | None] = [ready] * HALVES  # the last computation that reads a half
        self._left: list[Mark | None] = [None] * HALVES  # the last copy out of the pinned half
        self._next = 0
        self._block: HostBlock | None = None
        self._staging: Tensor | None = None
        self.refusal: PinRefusedError | None = None  # why there is no pinned side
        if allocator is not None:
            self._open_staging(records * record_bytes, allocator)

    def _open_staging(self, nbytes: int, allocator: HostAllocator) -> None:
        try:
            block = allocator.allocate(nbytes)
        except BaseException:
            self._release()
            raise
        try:
            block.populate()
            self._device.pin_buffer(block.address, nbytes)
        except PinRefusedError as refusal:
            block.free()
            self.refusal = refusal
            return
        except BaseException:
            block.free()
            self._release()
            raise
        self._block = block
        self._staging = torch.frombuffer(block.buffer, dtype=torch.uint8)

    @property
    def cause(self) -> str | None:
        """Why there is no pinned side, in words."""
        return None if self.refusal is None else self.refusal.sentence

    @property
    def stages(self) -> bool:
        """Whether records of ordinary memory can go through here."""
        return self._staging is not None

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return self._memory.nbytes

    @property
    def staging_bytes(self) -> int:
        """Pinned host memory."""
        return 0 if self._block is None else self._block.nbytes

    def stream(self, bank: ExpertBank, experts: list[int], *, staged: bool, gap: int = 0) -> Generator[Tensor]:
        """Records of these experts (ascending) on the device; each is valid until the next one is asked for.

        Args:
            staged: the bank is not pinned.
            gap: unwanted experts that are copied along, see copies.py.
        """
        pieces = self._pieces(bank, experts, gap)
        coming = self._load(bank, pieces[0], staged) if pieces else None
        for number, piece in enumerate(pieces):
            assert coming is not None
            half, arrived = coming
            coming = self._load(bank, pieces[number + 1], staged) if number + 1 < len(pieces) else None
            self._device.wait(arrived)
            try:
                yield from self._views(bank, half, piece)
            finally:
                self._free_after[half] = self._device.mark()

    def _pieces(self, bank: ExpertBank, experts: list[int], gap: int) -> list[_Piece]:
        """Cut into what fits a half."""
        most = self._half_bytes // bank.layout.record.bytes
        pieces: list[_Piece] = []
        room = place = 0
        for first, count in runs(experts, gap, most):
            if count > room:
                pieces.append(_Piece([], []))
                room = most
            pieces[-1].copies.append((first, count))
            room -= count
            while place < len(experts) and experts[place] < first + count:
                pieces[-1].experts.append(experts[place])
                place += 1
        return pieces

    def _load(self, bank: ExpertBank, piece: _Piece, staged: bool) -> tuple[int, Mark | None]:
        """Begin to fill the next half; which one it is, and when it has arrived."""
        half, self._next = self._next, (self._next + 1) % HALVES
        size = bank.layout.record.bytes
        start = half * self._half_bytes
        if staged:
            self._device.reach(self._left[half])
        arrived: Mark | None = None
        for first, count in piece.copies:
            source = bank.bytes[first * size : (first + count) * size]
            if staged:
                assert self._staging is not None
                source = self._staging[start : start + source.nbytes].copy_(source)
            target = self._memory[start : start + source.nbytes]
            arrived = self._device.copy_in(target, source, self._free_after[half])
            start += source.nbytes
        if staged:
            self._left[half] = arrived
        return half, arrived

    def _views(self, bank: ExpertBank, half: int, piece: _Piece) -> Iterator[Tensor]:
        size = bank.layout.record.bytes
        start = half * self._half_bytes
        places: dict[int, int] = {}
        for first, count in piece.copies:
            places |= {first + step: start + step * size for step in range(count)}
            start += count * size
        for expert in piece.experts:
            yield self._memory[places[expert] : places[expert] + size]

    def time_copies(
        self, bank: ExpertBank, seconds_of: Callable[[Callable[[], object]], float], small_copies: int
    ) -> tuple[float, float, float, int]:
        """Seconds of a copy of one half, of a tiny one, and of filling the pinned half; and the bytes of the half.

        Args:
            seconds_of: times a call that waits for what it does.
        """
        assert self._staging is not None
        size = min(self._half_bytes, bank.bytes.nbytes)
        target, pinned, source = self._memory[:size], self._staging[:size], bank.bytes[:size]

        def copy(nbytes: int, times: int) -> None:
            for _ in range(times):
                self._device.copy_in(target[:nbytes], pinned[:nbytes], self._device.mark())
            self._device.synchronize()

        small_s = seconds_of(lambda: copy(1, small_copies)) / small_copies
        return seconds_of(lambda: copy(size, 1)), small_s, seconds_of(lambda: pinned.copy_(source)), size

    def close(self) -> None:
        """Give both sides back."""
        self._device.synchronize()
        block, self._block = self._block, None
        self._staging = None  # the last view of the block
        if block is not None:
            self._device.unpin(block.address)
            block.free()
        self._release()

    def _release(self) -> None:
        self._device.release(self._memory.nbytes, TRANSFER_RING)
        self._memory = self._memory.new_empty(0)
