"""What others may ask of the operating system and the drivers, and the errors they answer with.

The implementations are chosen in `engine.system.select`; `PinRegistrar` is implemented where the GPU library is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, ClassVar, Literal, Protocol

from engine.contract.errors import SplitpinError
from engine.contract.facts import HardwareFacts
from engine.contract.processes import ProcessIdentity, ProcessTable, RunEntry
from engine.contract.units import gib


class RefusedError(SplitpinError):
    """The operating system or a driver said no. `code` and `words` are its own; `asked_bytes` is the request."""

    verb: ClassVar[str]
    fix_words: ClassVar[str]

    def __init__(self, *, asked_bytes: int, code: int | None, words: str) -> None:
        suffix = "" if code is None else f" (code {code})"
        super().__init__(
            f"{gib(asked_bytes)} could not be {self.verb}: {words}{suffix}.",
            self.fix_words,
            asked_bytes=asked_bytes,
            code=code,
            words=words,
        )
        self.asked_bytes = asked_bytes
        self.code = code
        self.words = words


class AllocationRefusedError(RefusedError):
    """Host memory was refused although the commit figures would allow it (a process limit, an address limit)."""

    kind = "allocation_refused"
    verb = "allocated"
    fix_words = "Close other programs, or choose a split that keeps fewer layers in RAM."


class LockRefusedError(RefusedError):
    """Pages could not be locked in RAM."""

    kind = "lock_refused"
    verb = "locked"
    fix_words = "Close other programs, or keep fewer layers locked."


class PinRefusedError(RefusedError):
    """The GPU driver did not register the pages."""

    kind = "pin_refused"
    verb = "pinned"
    fix_words = "Pin fewer layers, or lower the limit for pinned memory."


class LaunchRefusedError(SplitpinError):
    """A child process could not be started; `code` is the operating system's."""

    kind = "launch_refused"

    def __init__(self, *, program: str, code: int | None, words: str) -> None:
        super().__init__(
            f"{program} could not be started: {words}.",
            "Reinstall Splitpin, or choose another engine in the settings.",
            program=program,
            code=code,
            words=words,
        )


class MachineProbe(Protocol):
    """Finds out about the machine. Takes up to a second; not for the GUI thread."""

    def read(self) -> HardwareFacts:
        """All facts at this moment; what could not be read is unknown, never a guess."""
        ...


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory at one moment, in bytes, of all programs. None: unknown or not there.

    `shared_*` is the pool that pinned memory counts against, of the GPU the engine would use.
    """

    ram_used: int | None = None
    ram_total: int | None = None
    vram_used: int | None = None
    vram_total: int | None = None
    shared_used: int | None = None
    shared_limit: int | None = None


class LiveMemory(Protocol):
    """Cheap readings for bars, about once a second."""

    def read(self) -> MemoryUse: ...

    def close(self) -> None:
        """Let go of driver handles, so that a laptop's GPU may sleep. The next read opens them again."""
        ...


class HostBlock(Protocol):
    """One page-aligned piece of ordinary memory. The views over it must be gone before `free`."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def buffer(self) -> memoryview:
        """Writable view of all bytes."""
        ...

    def populate(self) -> None:
        """Touch every page now, so that locking or pinning later does not have to."""
        ...

    def free(self) -> None:
        """Give the memory back. A second call does nothing.

        Raises:
            BufferError: somebody still holds a view of the buffer (Linux and Windows alike).
        """
        ...


class HostAllocator(Protocol):
    """Anonymous host memory for expert banks."""

    def allocate(self, nbytes: int) -> HostBlock:
        """Commit `nbytes` > 0 at once, zeroed when first touched.

        Raises:
            NotEnoughCommitError: RAM and page file cannot promise that much; carries both numbers.
            AllocationRefusedError: refused for another reason; carries the system's code and words.
        """
        ...


class PageLocker(Protocol):
    """Keeps pages in RAM. Locks do not nest: one unlock undoes them all."""

    def lock(self, address: int, nbytes: int) -> None:
        """Lock all pages of the range, or none of them.

        Raises:
            LockRefusedError: the system refused; nothing stays locked.
        """
        ...

    def unlock(self, address: int, nbytes: int) -> None:
        """Undo `lock` for the same range."""
        ...


class PinRegistrar(Protocol):
    """Registers filled host memory with the GPU driver. One thread at a time."""

    def register(self, address: int, nbytes: int) -> None:
        """Pin the range.

        Raises:
            PinRefusedError: the driver refused; nothing stays registered.
        """
        ...

    def unregister(self, address: int) -> None:
        """Undo `register` that began at this address."""
        ...


class ProcessReader(Protocol):
    """The table of all processes, as data."""

    def read(self, engine_dirs: Sequence[str], ledger: Sequence[RunEntry]) -> ProcessTable:
        """Read all processes; `engine_dirs` and `ledger` are handed on in the table."""
        ...


NumberType = Literal["float32", "bfloat16", "float16"]


STRIP_ROWS = 32  # of weights, which the library unpacks at a time for products with many rows of activations


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """One matrix [rows, columns] as it lies in the records of a layer; words and tiles are those of `MatrixCode`."""

    kind: str
    dtype: str
    scale_dtype: str
    rows: int
    columns: int
    tile: tuple[int, int]
    bits: int
    zero_step: int
    divides: bool
    first_row: int  # of the outputs of all matrices, `row_step` apart
    row_step: int
    pieces: tuple[int | None, ...]  # where weight, scale, zero and order begin in a record; None: there is none
    wholes: int = 0  # address of the scales of whole matrices, float32 [E]; 0: there are none


@dataclass(frozen=True, slots=True)
class KernelTask:
    """One expert and the rows of activations that go through it; addresses of memory that others keep."""

    record: int
    rows: int  # float32 [tokens, columns]
    out: int  # float32 [tokens, outputs of all matrices]
    expert: int
    tokens: int


class PackedProduct(Protocol):
    """Products with the matrices of one layer that have the same inputs, whichever expert's."""

    def product(self, tasks: Sequence[KernelTask], outputs: int, threads: int, strips: int = 0) -> None:
        """Compute all tasks; `outputs` of a token lie one behind the other.

        Args:
            strips: address of memory for `STRIP_ROWS` rows of float32 weights for each thread, with which tasks of many
                tokens are faster; 0: none.
        """
        ...

    def unpack(self, record: int, expert: int, out: int, number: NumberType, columns: int, threads: int) -> None:
        """Write the matrices to `out` [outputs, columns]."""
        ...


class KernelLibrary(Protocol):
    """Computes with packed matrices on the CPU."""

    @property
    def instructions(self) -> str:
        """The instruction set, such as "avx2"."""
        ...

    @property
    def has_bf16(self) -> bool:
        """Whether the processor multiplies bfloat16 numbers itself."""
        ...

    def compile(self, matrices: Sequence[PackedMatrix]) -> PackedProduct | None:
        """What computes these matrices; None: one of them is stored in a way the library does not know."""
        ...


class ChildProcess(Protocol):
    """A process we started, with everything it starts. It ends when we end, however we end."""

    @property
    def pid(self) -> int: ...

    @property
    def create_time(self) -> float:
        """Seconds since the epoch."""
        ...

    @property
    def identity(self) -> ProcessIdentity: ...

    @property
    def stdin(self) -> IO[bytes]: ...

    @property
    def stdout(self) -> IO[bytes]: ...

    @property
    def stderr(self) -> IO[bytes]: ...

    def poll(self) -> int | None:
        """Exit code, or None while the process lives."""
        ...

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Exit code, or None if the process still lives after `timeout_s`. None waits for ever."""
        ...

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM). Windows knows no such request: there it ends the process."""
        ...

    def kill_tree(self) -> None:
        """End the process and all its descendants now. Harmless if they are gone."""
        ...

    def tree(self) -> tuple[ProcessIdentity, ...]:
        """Who lives now: the process and its descendants, also those whose own parent has ended."""
        ...

    def close(self) -> None:
        """End what is left of the tree and close the pipes."""
        ...


class ChildLauncher(Protocol):
    """Starts programs that cannot outlive this one."""

    def start(self, argv: Sequence[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> ChildProcess:
        """Start `argv` with three binary pipes, without a console window. `env` None: this process's own.

        Raises:
            LaunchRefusedError: the program is missing or the system refused.
        """
        ...


class EndResult(StrEnum):
    """What became of a request to end a process."""

    ENDED = "ended"
    GONE = "gone"  # there was no such process any more
    DENIED = "denied"  # it belongs to somebody else
    NOT_THE_SAME = "not the same process"  # the pid was given to another one
    LINGERS = "lingers"  # told to end, but a driver still holds it after the wait
