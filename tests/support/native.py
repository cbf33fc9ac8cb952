"""What tests know of the C kernels: whether a layer of a format is computed by them, and how alike answers are then."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

from engine.system import select

ROUNDING = 1e-5  # of float32 answers of tiny models, on another tier or by another kernel


def native_name() -> str:
    """How the residency report calls the C kernels. The library has to be there: `python -m engine.native.build`."""
    library = select.kernel_library()
    assert library is not None, "the library of engine/native is missing or does not load"
    return f"native {library.instructions}"


def alike(answers: list[Tensor]) -> None:
    """All are the first one, but for rounding."""
    for answer in answers:
        torch.testing.assert_close(answer, answers[0], rtol=0, atol=ROUNDING)


@contextmanager
def torch_alone() -> Iterator[None]:
    """Models that are loaded meanwhile compute packed experts by torch."""
    with patch.object(select, "kernel_library", lambda: None):
        yield
