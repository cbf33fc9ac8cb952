"""Pins whole layers through a driver: in chunks, on one thread, and never again after the first refusal."""

from collections.abc import Callable

from engine.contract.units import round_up
from engine.system.protocols import PinRefusedError, PinRegistrar

PIN_CHUNK_BYTES = 1 << 30  # one registration stalls every other CUDA call of the machine for as long as it takes
_PAGE_BYTES = 4096


class Pinning:
    """The pinned layers of this process.

    A refused registration can spoil all later ones of the process, smaller ones too, so the first refusal is final.
    """

    def __init__(
        self, registrar: PinRegistrar, clear_error: Callable[[], None], chunk_bytes: int = PIN_CHUNK_BYTES
    ) -> None:
        """`clear_error` removes the error that a refused call leaves behind for the next one to report."""
        self._registrar = registrar
        self._clear_error = clear_error
        self._chunk_bytes = round_up(chunk_bytes, _PAGE_BYTES)
        self._layers: dict[int, int] = {}
        self._refusal: PinRefusedError | None = None

    @property
    def layers(self) -> int:
        """How many layers are pinned now."""
        return len(self._layers)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of these layers."""
        return sum(self._layers.values())

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
        done: list[int] = []
        try:
            for start, size in self._chunks(nbytes):
                self._registrar.register(address + start, size)
                done.append(address + start)
        except PinRefusedError as refusal:
            self._refusal = refusal
            self._clear_error()
            for chunk in reversed(done):
                self._registrar.unregister(chunk)
            raise
        self._layers[address] = nbytes

    def unpin(self, address: int) -> None:
        """Undo `pin`; harmless for a range of 0 B."""
        nbytes = self._layers.pop(address, 0)
        for start, _ in self._chunks(nbytes):
            self._registrar.unregister(address + start)

    def _chunks(self, nbytes: int) -> list[tuple[int, int]]:
        step = self._chunk_bytes
        return [(start, min(step, nbytes - start)) for start in range(0, nbytes, step)]
