"""The library of engine/native: loading it, doing without it, and what it computes on this machine."""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.system import native_library
from engine.system.native_library import FOLDER, INSTRUCTION_SETS, NAME, SWITCH, NativeLibrary, kernel_library
from engine.system.protocols import PackedMatrix
from tests.support.native_matrices import instruction_sets
from tests.support.native_products import cases, differences

find_anew = kernel_library.__wrapped__  # without what the process has found


@pytest.fixture(autouse=True)
def usual_instructions() -> Iterator[None]:
    """The library computes as the process chose, after each test."""
    yield
    NativeLibrary(FOLDER / NAME)


def test_the_library_was_built_and_is_used() -> None:
    assert (FOLDER / NAME).exists(), "build it: python -m engine.native.build"
    library = kernel_library()
    assert library is not None and library.instructions == instruction_sets()[0]


@pytest.mark.parametrize("name", list(cases()))
@pytest.mark.parametrize("instructions", instruction_sets())
def test_matrices_are_computed_as_the_reference_does(instructions: str, name: str) -> None:
    library = NativeLibrary(FOLDER / NAME, (instructions,))
    for threads in (1, 2, 5):
        assert list(differences(library, cases()[name], threads)) == []


def test_a_matrix_of_a_kind_that_is_not_known_is_refused() -> None:
    def matrix(**changes: object) -> PackedMatrix:
        known = {"kind": "gguf", "dtype": "Q4_0", "columns": 64} | changes
        return PackedMatrix(
            scale_dtype="", rows=2, tile=(1, 1), bits=0, zero_step=0, divides=False, first_row=0, row_step=1,
            pieces=(0, None, None, None), **known,  # type: ignore[arg-type]
        )  # fmt: skip

    library = NativeLibrary(FOLDER / NAME)
    assert library.compile([matrix()]) is not None
    for change in ({"dtype": "Q9_9"}, {"columns": 48}, {"kind": "other"}, {"dtype": "Q4_0 with a long name"}):
        assert library.compile([matrix(), matrix(**change)]) is None


def _without(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> str:
    """What the log says of a library that cannot be used."""
    caplog.set_level(logging.INFO)
    assert find_anew() is None
    return caplog.messages[-1]


def test_without_the_library_torch_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    assert _without(monkeypatch, caplog).startswith("packed experts are computed by torch, which is slow: ")


def test_a_damaged_library_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    assert find_anew() is not None
    with (tmp_path / NAME).open("r+b") as file:
        file.truncate(3000)
    assert f"{NAME} is damaged" in _without(monkeypatch, caplog)


def test_a_library_of_another_version_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native_library, "INTERFACE", 999)
    assert "is of version 2, this engine needs version 999" in _without(monkeypatch, caplog)


@pytest.mark.skipif(os.name == "nt", reason="a DLL of the system would have to be named otherwise")
def test_another_library_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = next(Path(file) for file in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6") if Path(file).exists())
    shutil.copy(other, tmp_path / NAME)
    (tmp_path / f"{NAME}.stamp").write_text(hashlib.sha256(other.read_bytes()).hexdigest())
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    assert "has no splitpin_interface" in _without(monkeypatch, caplog)


def test_a_processor_without_the_instructions_is_told() -> None:
    with pytest.raises(OSError, match="this processor has no avx1024 or sse"):
        NativeLibrary(FOLDER / NAME, ("avx1024", "sse"))


def test_it_can_be_switched_off_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWITCH, "off")
    assert _without(monkeypatch, caplog) == "packed experts are computed by torch: SPLITPIN_KERNELS=off"


@pytest.mark.parametrize("chosen", instruction_sets())
def test_the_instructions_can_be_chosen(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, f" {chosen.upper()} ")
    library = find_anew()
    assert library is not None and library.instructions == chosen


def test_a_choice_that_does_not_exist_is_told_and_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWITCH, "fast")
    library = find_anew()
    assert library is not None and library.instructions in INSTRUCTION_SETS
    assert "SPLITPIN_KERNELS is 'fast', not off, avx512 or avx2" in caplog.messages


def test_threads_end_and_come_back() -> None:
    library = NativeLibrary(FOLDER / NAME)
    case = next(iter(cases().values()))
    for _ in range(3):
        assert list(differences(library, case, 4)) == []
        library.end_threads()
