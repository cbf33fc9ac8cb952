"""The routed forward pass against one loop per token and expert."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from typing_extensions import override

from engine.experts.kernels import ExpertWeights, group_by_expert, routed_forward

TOKENS, WIDTH, INNER, EXPERTS, ACTIVE = 7, 12, 6, 5, 2


@dataclass(frozen=True)
class SiluMath:
    """Gate times up, as most families do."""

    transposed: bool = False

    def activate(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    def finish(self, out: Tensor) -> Tensor:
        return out


class Weights:
    """All experts in memory."""

    def __init__(self, *, transposed: bool, bias: bool, dtype: torch.dtype) -> None:
        torch.manual_seed(3)
        up = torch.randn(EXPERTS, 2 * INNER, WIDTH).to(dtype)
        down = torch.randn(EXPERTS, WIDTH, INNER).to(dtype)
        self.up = up.transpose(1, 2).contiguous() if transposed else up
        self.down = down.transpose(1, 2).contiguous() if transposed else down
        self.up_bias = torch.randn(EXPERTS, 2 * INNER).to(dtype) if bias else None
        self.down_bias = torch.randn(EXPERTS, WIDTH).to(dtype) if bias else None

    def one(self, expert: int) -> ExpertWeights:
        return ExpertWeights(
            self.up[expert],
            self.down[expert],
            None if self.up_bias is None else self.up_bias[expert],
            None if self.down_bias is None else self.down_bias[expert],
        )

    def several(self, tokens: int) -> None:
        return None

    def stream(self, experts: list[int]) -> Iterator[ExpertWeights]:
        return map(self.one, experts)


def _loop(hidden: Tensor, ids: Tensor, scores: Tensor, weights: Weights, math: SiluMath) -> Tensor:
    total = torch.zeros(hidden.shape, dtype=torch.float64)
    for token in range(hidden.shape[0]):
        for rank, expert in enumerate(ids[token].tolist()):
            if expert >= EXPERTS:
                continue
            one = weights.one(expert)
            up, down = (one.up, one.down) if math.transposed else (one.up.T, one.down.T)
            middle = hidden[token].double() @ up.double()
            middle = middle if one.up_bias is None else middle + one.up_bias.double()
            out = math.activate(middle) @ down.double()
            out = out if one.down_bias is None else out + one.down_bias.double()
            total[token] += out * scores[token, rank].double()
    return total


@pytest.mark.parametrize("n_tokens", [1, 2, TOKENS])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_weighted_sum_is_that_of_a_loop_over_tokens_and_experts(
    n_tokens: int, transposed: bool, bias: bool
) -> None:
    weights = Weights(transposed=transposed, bias=bias, dtype=torch.float32)
    math = SiluMath(transposed)
    hidden = torch.randn(n_tokens, WIDTH)
    ids = torch.stack([torch.randperm(EXPERTS)[:ACTIVE] for _ in range(n_tokens)])
    scores = torch.rand(n_tokens, ACTIVE)
    got = routed_forward(hidden, ids, scores, EXPERTS, weights, math)
    torch.testing.assert_close(got.double(), _loop(hidden, ids, scores, weights, math), rtol=1e-5, atol=1e-5)


def test_masked_choices_add_nothing() -> None:
    weights = Weights(transposed=False, bias=False, dtype=torch.float32)
    alone = torch.tensor([[EXPERTS, EXPERTS]])
    assert routed_forward(torch.ones(1, WIDTH), alone, torch.ones(1, 2), EXPERTS, weights, SiluMath()).abs().max() == 0
    hidden = torch.randn(3, WIDTH)
    ids = torch.tensor([[EXPERTS, 1], [EXPERTS, EXPERTS], [2, 0]])
    scores = torch.rand(3, 2)
    got = routed_forward(hidden, ids, scores, EXPERTS, weights, SiluMath())
    assert got[1].abs().max() == 0
    torch.testing.assert_close(got.double(), _loop(hidden, ids, scores, weights, SiluMath()), rtol=1e-5, atol=1e-5)


def test_bf16_experts_are_summed_in_float32() -> None:
    """One large and many small contributions: a bf16 sum would lose all the small ones."""
    experts = 64
    up = torch.eye(2, dtype=torch.bfloat16).repeat(2, 1)

    class Source:
        def several(self, tokens: int) -> None:
            return None

        def stream(self, wanted: list[int]) -> Iterator[ExpertWeights]:
            for expert in wanted:
                down = torch.eye(2, dtype=torch.bfloat16) * (256.0 if expert == 0 else 0.5)
                yield ExpertWeights(up, down, None, None)

    class Identity(SiluMath):
        @override
        def activate(self, gate_up: Tensor) -> Tensor:
            return gate_up[:, :2]

    hidden = torch.ones(1, 2, dtype=torch.bfloat16)
    ids = torch.arange(experts)[None]
    got = routed_forward(hidden, ids, torch.ones(1, experts), experts, Source(), Identity())
    assert got[0, 0] == torch.tensor(256.0 + 63 * 0.5).to(torch.bfloat16)  # 287.5; a bf16 sum stays at 256


def test_rows_are_grouped_by_expert_then_rank_then_token() -> None:
    routing = group_by_expert(torch.tensor([[1, 0], [0, 1], [1, 3]]), 4)
    assert routing.experts == [0, 1, 3]
    assert routing.counts == [2, 3, 1]
    assert routing.tokens.tolist() == [1, 0, 0, 2, 1, 2]
    assert routing.ranks.tolist() == [0, 1, 0, 0, 1, 1]
