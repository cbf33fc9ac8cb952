"""The DLL of engine/native computes what the reference does, seen on Windows itself. Build it first on another system:
`python -m engine.native.build --target windows`.
"""

import os
import threading

import pytest

from engine.system.native_library import FOLDER, NAME, NativeLibrary
from tests.support.native_products import cases, differences

pytestmark = [
    pytest.mark.windows,
    pytest.mark.skipif(os.name != "nt", reason="needs Windows or the Windows interpreter under Wine"),
]


@pytest.mark.parametrize("name", list(cases()))
def test_packed_matrices_are_computed_as_the_reference_does(name: str) -> None:
    library = NativeLibrary(FOLDER / NAME)
    for threads in (1, 2, 5):
        assert list(differences(library, cases()[name], threads)) == []


def test_avx2_computes_the_same() -> None:
    library = NativeLibrary(FOLDER / NAME, ("avx2",))
    assert {name: list(differences(library, case, 2)) for name, case in cases().items()} == {
        name: [] for name in cases()
    }


def test_threads_end_and_come_back_and_callers_take_turns() -> None:
    library = NativeLibrary(FOLDER / NAME)
    case = next(iter(cases().values()))
    found: list[str] = []

    def call() -> None:
        for _ in range(50):
            found.extend(differences(library, case, 3))

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    library.end_threads()
    assert found == list(differences(library, case, 3)) == []
    library.end_threads()
