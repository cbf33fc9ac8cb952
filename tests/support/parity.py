"""One family on one split, against the stock model: logits, tokens and bytes."""

from dataclasses import dataclass

import torch

from engine.contract.residency import ResidencyReport
from engine.model.build import load_model
from tests.support.reference import greedy, prefill, random_prompt, stock_logits
from tests.support.tiny_models import TinyModel, plan_for

SPLITS = ("l", "g", "v", "p", "vplg")
PROMPT_TOKENS, DECODED_TOKENS, CHUNK, CONTEXT = 23, 8, 7, 48  # several chunks, and beyond the windows


@dataclass(frozen=True, slots=True)
class Parity:
    """What one load showed."""

    max_difference: float
    tokens_equal: bool
    bytes_equal: bool
    difference: str  # of the ledgers, in words; empty where they are equal

    @property
    def good(self) -> bool:
        """Everything as it must be in fp32."""
        return self.max_difference <= 1e-5 and self.tokens_equal and self.bytes_equal


def compare(checkpoint: TinyModel, pattern: str) -> Parity:
    """Prefill in chunks, decode, begin anew and answer greedily; `pattern` is repeated over the layers with experts."""
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
    want = stock_logits(checkpoint, [*tokens, *answer])  # causal: later tokens change nothing before them
    difference = (torch.stack(got) - want[len(first) - 1 : len(tokens)]).abs().max().item()
    judged = want[len(tokens) - 1 : -1].argmax(dim=-1).tolist()
    return Parity(difference, answer == judged, not words, words)


def differences(report: ResidencyReport) -> str:
    """Lines of the ledger that settled otherwise than asked, in words; empty where there are none."""
    asked = {(line.pool, line.what): line.bytes for line in report.ledger_asked}
    settled = {(line.pool, line.what): line.bytes for line in report.ledger_settled}
    odd = [place for place in asked | settled if asked.get(place) != settled.get(place)]
    return "; ".join(
        f"{pool} {what}: {asked.get((pool, what))} asked, {settled.get((pool, what))} settled" for pool, what in odd
    )
