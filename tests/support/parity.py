"""One family on one split, against the stock model: logits, tokens and bytes."""

from dataclasses import dataclass

import torch

from engine.contract.residency import ResidencyReport
from engine.model.build import load_model
from tests.support.reference import greedy, prefill, random_prompt, stock_logits
from tests.support.tiny_models import TinyModel, plan_for

SPLITS = ("l", "g", "v", "p", "vplg")
EXACT = 1e-5  # largest difference in fp32
ROUNDED = 3  # times the errors of the stock model, in 16 bits
PROMPT_TOKENS, DECODED_TOKENS, CHUNK, CONTEXT = 23, 8, 7, 48  # several chunks, and beyond the windows


@dataclass(frozen=True, slots=True)
class Parity:
    """What one load showed.

    `max_difference` is from the stock model in fp32; in 16 bits from what it computes in fp32 with the same weights.
    """

    max_difference: float
    allowed: float
    tokens_equal: bool
    bytes_equal: bool
    difference: str  # of the ledgers, in words; empty where they are equal

    @property
    def good(self) -> bool:
        """Everything as it must be."""
        return self.max_difference <= self.allowed and self.tokens_equal and self.bytes_equal


def compare(
    checkpoint: TinyModel, pattern: str, *, judge: TinyModel | None = None, dtype: torch.dtype = torch.float32
) -> Parity:
    """Prefill in chunks, decode, begin anew and answer greedily; `pattern` is repeated over the layers with experts.

    In fp32 logits may differ by 1e-5 and tokens not at all. In 16 bits every step rounds, those of the stock model as
    well: its own errors are the measure. Ours may be three times as large, counted as root mean squares; a token may be
    another one where the two are no further apart than three of its largest errors.

    Args:
        judge: the same weights for the stock model, where it cannot read them as they are stored.
        dtype: what the model computes in.
    """
    n_layers = len(checkpoint.shape.moe_layers)
    plan = plan_for(checkpoint, (pattern * n_layers)[:n_layers], prefill_chunk=CHUNK, context_tokens=CONTEXT)
    model = load_model(plan, report=lambda _: None, cancelled=lambda: False)
    try:
        tokens = random_prompt(PROMPT_TOKENS)
        first = tokens[: PROMPT_TOKENS - DECODED_TOKENS]
        got = [prefill(model, first), *(model.decode(token) for token in tokens[len(first) :])]
        model.reset()
        answer = greedy(model, tokens, DECODED_TOKENS)
        words = differences(model.residency())
    finally:
        model.close()
    everything = [*tokens, *answer]  # causal: later tokens change nothing before them
    want = stock_logits(judge or checkpoint, everything)[len(first) - 1 :]
    errors = torch.stack(got) - want[: len(got)]
    difference, allowed, apart = errors.abs().max().item(), EXACT, 0.0
    if dtype is not torch.float32:
        rounding = stock_logits(judge or checkpoint, everything, dtype)[len(first) - 1 :] - want
        difference, allowed = _mean(errors), ROUNDED * _mean(rounding[: len(got)])
        apart = ROUNDED * rounding.abs().max().item()
    ahead = want[len(got) - 1 : -1]
    chosen = ahead.gather(1, torch.tensor(answer)[:, None])[:, 0]
    tokens_equal = bool((ahead.amax(dim=1) - chosen <= apart).all())
    return Parity(difference, allowed, tokens_equal, not words, words)


def _mean(errors: torch.Tensor) -> float:
    return errors.square().mean().sqrt().item()


def differences(report: ResidencyReport) -> str:
    """Lines of the ledger that settled otherwise than asked, in words; empty where there are none."""
    asked = {(line.pool, line.what): line.bytes for line in report.ledger_asked}
    settled = {(line.pool, line.what): line.bytes for line in report.ledger_settled}
    odd = [place for place in asked | settled if asked.get(place) != settled.get(place)]
    return "; ".join(
        f"{pool} {what}: {asked.get((pool, what))} asked, {settled.get((pool, what))} settled" for pool, what in odd
    )
