"""The call of a decoding step is measured once, and both calls compute the same product."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from engine.experts import one_row as module
from engine.experts.one_row import choose_call, one_row

MATRICES = [torch.randn(512, 1024, generator=torch.Generator().manual_seed(n)).bfloat16() for n in range(3)]


@pytest.fixture(autouse=True)
def unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has chosen nothing yet."""
    monkeypatch.setattr(module, "_by_mv", {})


def _settle(monkeypatch: pytest.MonkeyPatch, linear_s: float, mv_s: float) -> None:
    def seconds() -> Iterator[float]:
        while True:
            yield linear_s
            yield mv_s

    times = seconds()
    monkeypatch.setattr(module, "_seconds", lambda run, matrices: next(times))
    choose_call(MATRICES)


@pytest.mark.parametrize(("linear_s", "mv_s", "by_mv"), [(2.0, 1.0, True), (1.0, 1.0, False), (1.1, 1.0, False)])
def test_the_other_call_is_taken_for_a_clear_gain(
    linear_s: float, mv_s: float, by_mv: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _settle(monkeypatch, linear_s, mv_s)
    assert module._by_mv == {torch.bfloat16: by_mv}
    row = torch.randn(1, 1024).bfloat16()
    got = one_row(row, MATRICES[0])
    want = torch.mv(MATRICES[0], row[0])[None] if by_mv else F.linear(row, MATRICES[0])
    assert torch.equal(got, want)
    exact = row.double() @ MATRICES[0].double().T
    assert (got.double() - exact).abs().max() < 0.01 * exact.abs().max()


def test_what_is_settled_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    _settle(monkeypatch, 1.0, 2.0)
    _settle(monkeypatch, 2.0, 1.0)
    assert module._by_mv == {torch.bfloat16: False}


def test_small_matrices_settle_nothing() -> None:
    choose_call([torch.zeros(8, 8)])
    choose_call([])
    assert module._by_mv == {}


def test_a_real_measurement_settles_the_type() -> None:
    choose_call(MATRICES)
    assert set(module._by_mv) == {torch.bfloat16}
