"""Routed experts in plain torch. Letters: T tokens, A active experts a token, M model width, F expert width.

Every tier runs exactly these operations in exactly this order, so the split never changes a token.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.experts.one_row import one_row


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """Matrices of one expert, as views of its record: up [2F or F, M] and down [M, F], or both transposed."""

    up: Tensor
    down: Tensor
    up_bias: Tensor | None
    down_bias: Tensor | None

    def compute(self, rows: Tensor, math: "ExpertMath") -> Tensor:
        """The expert on its rows [T, M] to [T, M], in the type of the weights."""
        return expert_forward(rows.to(self.up.dtype), self, math)


class ExpertMath(Protocol):
    """What a model family does between and after the two matrices."""

    @property
    def transposed(self) -> bool:
        """Whether the matrices are [M, 2F] and [F, M]."""
        ...

    def activate(self, gate_up: Tensor) -> Tensor:
        """Activation, with the gate where there is one: [T, 2F or F] to [T, F]."""
        ...

    def finish(self, out: Tensor) -> Tensor:
        """Norm after the expert where the family has one: [T, M] to [T, M]."""
        ...


class Expert(Protocol):
    """One expert, ready to compute; `ExpertWeights` in plain torch, something of its own with a fast kernel."""

    def compute(self, rows: Tensor, math: ExpertMath) -> Tensor:
        """[T, M] to [T, M]."""
        ...


class SeveralExperts(Protocol):
    """Computes all experts of a small step in one call."""

    def __call__(self, experts: list[int], counts: list[int], rows: Tensor, math: ExpertMath) -> Tensor:
        """Rows [N, M], as many of each expert as `counts` says, to [N, M]; one row [1, M] is that of all experts."""
        ...


class ExpertSource(Protocol):
    """Hands out experts in the order asked for."""

    def several(self, tokens: int) -> SeveralExperts | None:
        """What computes the experts of a step of so many tokens at once; None: they are streamed."""
        ...

    def stream(self, experts: list[int]) -> Iterator[Expert]:
        """Each expert; valid until the next one is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Routing:
    """Rows of one forward pass grouped by expert, ascending."""

    experts: list[int]
    counts: list[int]
    tokens: Tensor  # int64 [sum of counts], token of each row
    ranks: Tensor  # int64, which of the token's A choices the row is


def group_by_expert(ids: Tensor, n_experts: int) -> Routing:
    """Group the choices of all tokens by expert; ids >= n_experts are masked choices and left out.

    Args:
        ids: chosen experts [T, A], int64.

    Returns:
        Within an expert the rows are ordered by rank, then token, as the reference implementation orders them.
    """
    n_tokens = ids.shape[0]
    flat = ids.t().reshape(-1)
    order = torch.argsort(flat, stable=True)
    all_counts = torch.bincount(flat.clamp(max=n_experts), minlength=n_experts + 1).tolist()
    experts = [expert for expert, count in enumerate(all_counts[:n_experts]) if count]
    counts = [all_counts[expert] for expert in experts]
    order = order[: sum(counts)]
    return Routing(experts, counts, tokens=order % n_tokens, ranks=order // n_tokens)


def _turned(rows: Tensor, matrix: Tensor) -> Tensor:
    """[T, M] times [M, N]."""
    return rows @ matrix


def expert_forward(rows: Tensor, weights: ExpertWeights, math: ExpertMath) -> Tensor:
    """One expert on its rows [T, M] to [T, M]."""
    product = _turned if math.transposed else one_row if rows.shape[0] == 1 else F.linear
    hidden = product(rows, weights.up)
    if weights.up_bias is not None:
        hidden = hidden + weights.up_bias
    hidden = math.activate(hidden)
    out = product(hidden, weights.down)
    if weights.down_bias is not None:
        out = out + weights.down_bias
    return math.finish(out)


def routed_forward(
    hidden: Tensor, ids: Tensor, scores: Tensor, n_experts: int, source: ExpertSource, math: ExpertMath
) -> Tensor:
    """Weighted sum of the chosen experts of each token; checked against transformers' own eager loop in the tests.

    Args:
        hidden: [T, M], on the device that computes.
        ids: chosen experts [T, A].
        scores: their weights [T, A].

    Returns:
        [T, M] in the type of `hidden`. The sum runs in float32: in bf16 it drifts after some twenty tokens.
    """
    if hidden.shape[0] == 1:
        return _one_token_forward(hidden, ids, scores, n_experts, source, math)
    routing = group_by_expert(ids, n_experts)
    total = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
    several = source.several(hidden.shape[0])
    if several is not None and routing.experts:
        out = several(routing.experts, routing.counts, hidden[routing.tokens], math)
        weights = scores[routing.tokens, routing.ranks, None].float()
        return total.index_add_(0, routing.tokens, out.float() * weights).to(hidden.dtype)
    start = 0
    for count, expert in zip(routing.counts, source.stream(routing.experts), strict=True):
        tokens = routing.tokens[start : start + count]
        ranks = routing.ranks[start : start + count]
        out = expert.compute(hidden[tokens], math)
        total.index_add_(0, tokens, out.float() * scores[tokens, ranks, None].float())
        start += count
    return total.to(hidden.dtype)


def _one_token_forward(
    hidden: Tensor, ids: Tensor, scores: Tensor, n_experts: int, source: ExpertSource, math: ExpertMath
) -> Tensor:
    """The same for T = 1, without grouping rows: decoding spends its time in the matrices and not around them."""
    chosen = sorted((number, rank) for rank, number in enumerate(ids[0].tolist()) if number < n_experts)
    total = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
    several = source.several(1)
    if several is not None and chosen:
        outs = several([number for number, _ in chosen], [1] * len(chosen), hidden, math).float()
        for (_, rank), out in zip(chosen, outs, strict=True):
            total += out * scores[0, rank].float()
        return total.to(hidden.dtype)
    for (_, rank), expert in zip(chosen, source.stream([number for number, _ in chosen]), strict=True):
        out = expert.compute(hidden, math)
        total += out.float() * scores[0, rank].float()
    return total.to(hidden.dtype)
