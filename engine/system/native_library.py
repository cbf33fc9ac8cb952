"""The library of engine/native through ctypes: products with packed matrices on the CPU, and unpacking them.

It is optional. Where it is missing, damaged, of another version, or this CPU has no AVX2, there is none and torch
computes; `SPLITPIN_KERNELS=off` does the same, `avx2` or `avx512` chooses one of the two.
"""

import ctypes
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from typing_extensions import override

from engine.system.protocols import KernelLibrary, KernelTask, NumberType, PackedMatrix, PackedProduct

INTERFACE = 2  # of engine/native/kernels.h
SWITCH = "SPLITPIN_KERNELS"
FOLDER = Path(__file__).resolve().parents[1] / "native" / "built"
NAME = "splitpin_kernels.dll" if os.name == "nt" else "splitpin_kernels.so"
INSTRUCTION_SETS = ("avx512", "avx2")  # the first that this machine has is used

_log = logging.getLogger(__name__)
_LONGEST_WORD = 11  # that a struct holds with its end
_SILENT = ("splitpin_product", "splitpin_unpack", "splitpin_close")  # return nothing
_NUMBERS: dict[NumberType, int] = {"float32": 0, "bfloat16": 1, "float16": 2}


class Matrix(ctypes.Structure):
    """`struct matrix` of kernels.h."""

    _fields_ = (
        ("kind", ctypes.c_char * 12),
        ("dtype", ctypes.c_char * 12),
        ("scale_dtype", ctypes.c_char * 12),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
        ("tile_rows", ctypes.c_int32),
        ("tile_columns", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("zero_step", ctypes.c_int32),
        ("divides", ctypes.c_int32),
        ("first_row", ctypes.c_int32),
        ("row_step", ctypes.c_int32),
        ("format", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("weight", ctypes.c_int64),
        ("scale", ctypes.c_int64),
        ("zero", ctypes.c_int64),
        ("order", ctypes.c_int64),
        ("wholes", ctypes.c_void_p),
    )


class Task(ctypes.Structure):
    """`struct task` of kernels.h."""

    _fields_ = (
        ("record", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("expert", ctypes.c_int32),
        ("tokens", ctypes.c_int32),
    )


class NativeProduct(PackedProduct):
    """Matrices of one layer, ready for the library."""

    def __init__(self, library: ctypes.CDLL, matrices: Sequence[Matrix]) -> None:
        self._library = library
        self._count = len(matrices)
        self._matrices = (Matrix * self._count)(*matrices)

    @override
    def product(self, tasks: Sequence[KernelTask], outputs: int, threads: int, strips: int = 0) -> None:
        found = (Task * len(tasks))(*(Task(one.record, one.rows, one.out, one.expert, one.tokens) for one in tasks))
        self._library.splitpin_product(self._matrices, self._count, found, len(tasks), outputs, strips or None, threads)

    @override
    def unpack(self, record: int, expert: int, out: int, number: NumberType, columns: int, threads: int) -> None:
        self._library.splitpin_unpack(
            self._matrices, self._count, record, expert, out, _NUMBERS[number], columns, threads
        )


class NativeLibrary(KernelLibrary):
    """The library, computing with one instruction set: of the whole process, the last one that was opened decides."""

    def __init__(self, file: Path, instructions: Sequence[str] = INSTRUCTION_SETS) -> None:
        """Load it, and take the first of the instruction sets that this machine has.

        Raises:
            OSError: it is damaged, cannot be loaded, is of another version, or this machine has none of them.
        """
        _check_whole(file)
        self._library = ctypes.CDLL(str(file))
        found = [self._function("splitpin_interface")(), self._function("splitpin_matrix_bytes")()]
        if found != [INTERFACE, ctypes.sizeof(Matrix)]:
            raise OSError(f"{file.name} is of version {found[0]}, this engine needs version {INTERFACE}")
        use = self._function("splitpin_use", ctypes.c_char_p)
        usable = next((name for name in instructions if use(name.encode())), None)
        if usable is None:
            raise OSError(f"this processor has no {' or '.join(instructions)}")
        self._instructions = usable
        self._find = self._function("splitpin_find", ctypes.POINTER(Matrix))
        self._function(
            "splitpin_product",
            *(ctypes.POINTER(Matrix), ctypes.c_int32, ctypes.POINTER(Task)),
            *(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32),
        )
        self._function(
            "splitpin_unpack",
            *(ctypes.POINTER(Matrix), ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32),
            *(ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int32),
        )

    @property
    @override
    def instructions(self) -> str:
        return self._instructions

    @property
    @override
    def has_bf16(self) -> bool:
        return bool(self._function("splitpin_has_bf16")())

    @override
    def compile(self, matrices: Sequence[PackedMatrix]) -> NativeProduct | None:
        if any(len(word) > _LONGEST_WORD for matrix in matrices for word in _words(matrix)):
            return None
        known = [_struct(matrix) for matrix in matrices]
        for matrix in known:
            matrix.format = self._find(matrix)
        return NativeProduct(self._library, known) if all(matrix.format >= 0 for matrix in known) else None

    def end_threads(self) -> None:
        """End the threads that sleep between calls; the next call starts others."""
        self._function("splitpin_close")()

    def _function(self, name: str, *arguments: Any) -> Callable[..., int]:
        try:
            found = getattr(self._library, name)
        except AttributeError as cause:
            raise OSError(f"the library has no {name}") from cause
        found.restype = None if name in _SILENT else ctypes.c_int32
        found.argtypes = arguments
        return cast(Callable[..., int], found)


def _check_whole(file: Path) -> None:
    """Loading a library that ends too early would end the process.

    Raises:
        OSError: it is not the one that was built.
    """
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest not in file.with_name(f"{file.name}.stamp").read_text("utf-8").split():
        raise OSError(f"{file.name} is damaged")


@cache
def kernel_library() -> KernelLibrary | None:
    """The library of this process; None: torch computes, and the log says why."""
    chosen = os.environ.get(SWITCH, "").strip().lower()
    if chosen == "off":
        _log.info("packed experts are computed by torch: %s=off", SWITCH)
        return None
    if chosen and chosen not in INSTRUCTION_SETS:
        _log.warning("%s is %r, not off, %s", SWITCH, chosen, " or ".join(INSTRUCTION_SETS))
        chosen = ""
    try:
        library = NativeLibrary(FOLDER / NAME, (chosen,) if chosen else INSTRUCTION_SETS)
    except OSError as cause:
        _log.warning("packed experts are computed by torch, which is slow: %s", cause)
        return None
    _log.info("packed experts are computed with %s", library.instructions)
    return library


def _words(matrix: PackedMatrix) -> tuple[str, str, str]:
    return matrix.kind, matrix.dtype, matrix.scale_dtype


def _struct(matrix: PackedMatrix) -> Matrix:
    places = (-1 if place is None else place for place in matrix.pieces)
    return Matrix(
        *(word.encode() for word in _words(matrix)),
        *(matrix.rows, matrix.columns, *matrix.tile, matrix.bits, matrix.zero_step, int(matrix.divides)),
        *(matrix.first_row, matrix.row_step, -1, 0),
        *places,
        matrix.wholes or None,
    )
