"""Disks with bad habits, for loads: they open files as the engine does and answer reads in their own way."""

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from typing_extensions import Buffer, override

from engine.checkpoint.weight_files import open_weights

Answer = Callable[[memoryview], int | None]  # bytes to hand out at most; None: as the system does


class _Stream(io.RawIOBase):
    """A file that asks its disk before each read."""

    def __init__(self, inner: BinaryIO, answer: Answer) -> None:
        super().__init__()
        self._inner = inner
        self._answer = answer

    @override
    def readinto(self, buffer: Buffer, /) -> int | None:
        target = memoryview(buffer)
        most = self._answer(target)
        return cast(int, self._inner.readinto(target if most is None else target[:most]))  # type: ignore[attr-defined]

    @override
    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._inner.seek(offset, whence)

    @override
    def close(self) -> None:
        self._inner.close()
        super().close()


class Disk:
    """Opens files; `answer` is asked before every read, from any thread."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._counting = threading.Lock()
        self.reads = 0
        self.opened = 0

    def open(self, file: Path) -> BinaryIO:
        """Open a weight file."""
        with self._counting:
            self.opened += 1
        return cast(BinaryIO, _Stream(open_weights(file), self._before))

    def _before(self, target: memoryview) -> int | None:
        with self._counting:
            self.reads += 1
        return self._answer(target)


def failing_after(nbytes: int, how: str) -> Disk:
    """A disk that breaks once so many bytes were asked for: "error" is an EIO, "end" a file that ends there."""
    left = [nbytes]
    counting = threading.Lock()

    def answer(target: memoryview) -> int | None:
        with counting:
            left[0] -= target.nbytes
            if left[0] >= 0:
                return None
        if how == "error":
            raise OSError(5, "Input/output error")
        return 0

    return Disk(answer)
