"""Pins whole layers through a driver: in chunks, on one thread, and never again after the first refusal."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from itertools import pairwise

from torch import Tensor

from engine.contract.units import round_up
from engine.system.protocols import PinRefusedError, PinRegistrar

PIN_CHUNK_BYTES = 1 << 30  # one registration stalls every other CUDA call of the machine for as long as it takes
MARGIN_BYTES = 1 << 30  # a driver that refused a pin has nothing left for itself either; so much it gets back
_PAGE_BYTES = 4096
_MARGIN_SHARE = 16  # of what is pinned: the margin is no more, as giving back most of it would help nobody


class Pinning:
    """The pinned layers of this process.

    A refused registration can spoil all later ones of the process, smaller ones too, so the first refusal is final.
    """

    def __init__(
        self,
        registrar: PinRegistrar,
        clear_error: Callable[[], None],
        *,
        chunk_bytes: int = PIN_CHUNK_BYTES,
        margin_bytes: int = MARGIN_BYTES,
    ) -> None:
        """`clear_error` removes the error that a refused call leaves behind for the next one to report."""
        self._registrar = registrar
        self._clear_error = clear_error
        self._chunk_bytes = round_up(chunk_bytes, _PAGE_BYTES)
        self._margin_bytes = margin_bytes
        self._layers: dict[int, int] = {}
        self._seams: list[int] = []  # addresses inside layers where one registration ends and the next one begins
        self._refusal: PinRefusedError | None = None
        self._owed_bytes = 0
        self.check: Callable[[], None] = _go_on  # called before each chunk; what it raises ends the pin

    @property
    def layers(self) -> int:
        """How many layers are pinned now."""
        return len(self._layers)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of these layers."""
        return sum(self._layers.values())

    def owes(self, nbytes: int) -> bool:
        """Whether a layer of this size is to be unpinned, so that the driver has room to work after a refusal.

        To the nearest layer: what the refused one had got already counts, and half a layer is not made a whole one.
        """
        return 2 * self._owed_bytes > nbytes

    def pin(self, address: int, nbytes: int) -> None:
        """Register one layer; 0 B is skipped, the driver calls that an error.

        Raises:
            PinRefusedError: the driver refused now or earlier; nothing of the range stays registered.
        """
        if nbytes == 0:
            return
        if self._refusal is not None:
            words = "not tried again after the driver's first refusal"
            raise PinRefusedError(asked_bytes=nbytes, code=self._refusal.code, words=words)
        done: list[tuple[int, int]] = []
        try:
            for start, size in self._chunks(nbytes):
                self.check()
                self._registrar.register(address + start, size)
                done.append((address + start, size))
        except PinRefusedError as refusal:
            self._refusal = refusal
            self._clear_error()
            self._unregister(done)
            margin = min(self._margin_bytes, self.pinned_bytes // _MARGIN_SHARE)
            self._owed_bytes = margin - sum(size for _, size in done)
            raise
        except BaseException:
            self._unregister(done)
            raise
        self._layers[address] = nbytes
        for start, _ in done[1:]:
            insort(self._seams, start)

    def unpin(self, address: int) -> None:
        """Undo `pin`; harmless for a range of 0 B."""
        nbytes = self._layers.pop(address, 0)
        self._owed_bytes -= nbytes
        for start, _ in self._chunks(nbytes):
            self._registrar.unregister(address + start)
            if start:
                self._seams.remove(address + start)

    def distrust(self, address: int) -> PinRefusedError:
        """Unpin a layer whose bytes do not arrive on the device, and pin none again; the error to raise."""
        nbytes = self._layers[address]
        self.unpin(address)
        self._clear_error()
        words = "the driver agreed, yet bytes copied from there did not arrive"
        self._refusal = PinRefusedError(asked_bytes=nbytes, code=None, words=words)
        return self._refusal

    def cut(self, target: Tensor, source: Tensor) -> list[tuple[Tensor, Tensor]]:
        """A copy (uint8 [n] to uint8 [n]) in pieces none of which spans two registrations: CUDA refuses those.

        Source: sgl-project/sglang#36798, "invalid argument" of copies across chunks.
        """
        if not self._seams:
            return [(target, source)]
        inner = {offset for side in (source, target) for offset in self._inside(side)}
        return [(target[a:b], source[a:b]) for a, b in pairwise([0, *sorted(inner), target.nbytes])]

    def _inside(self, side: Tensor) -> list[int]:
        """Offsets in a copied range at which one registration ends and the next one begins."""
        start = side.data_ptr()
        first, last = bisect_right(self._seams, start), bisect_left(self._seams, start + side.nbytes)
        return [seam - start for seam in self._seams[first:last]]

    def _unregister(self, chunks: list[tuple[int, int]]) -> None:
        for address, _ in reversed(chunks):
            self._registrar.unregister(address)

    def _chunks(self, nbytes: int) -> list[tuple[int, int]]:
        step = self._chunk_bytes
        return [(start, min(step, nbytes - start)) for start in range(0, nbytes, step)]


def _go_on() -> None:
    """Nobody wants the load to stop."""
