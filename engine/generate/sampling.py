"""Pick the next token from the logits of one position, [V] float32.

Order of the filters, as in transformers: repetition penalty, temperature, top_k, top_p, min_p.
Checked against a plain re-statement in tests/engine/generate/test_sampling.py.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.contract.errors import SplitpinError
from engine.generate.request import Sampling

# Sorting all of a 150k vocabulary takes longer than some decode steps, and few tokens hold the mass.
FIRST_CANDIDATES = 2048


class BadLogitsError(SplitpinError):
    """The model computed what no token can be picked from: damaged weights, or numbers too large for their type."""

    kind = "answer_failed"


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens that survived the filters, likeliest first: ids [C] int64, probabilities [C] float32 with sum 1."""

    ids: Tensor
    probabilities: Tensor


def penalise_repeats(logits: Tensor, seen_ids: Collection[int], penalty: float) -> Tensor:
    """Divide positive and multiply negative logits of seen tokens by `penalty` (CTRL, Keskar et al. 2019).

    What would be too large for a float32 becomes the largest, so that logits stay finite with any penalty.
    """
    if penalty == 1.0 or not seen_ids:
        return logits
    places = torch.tensor(sorted(seen_ids), dtype=torch.int64)
    seen = logits[places].double()
    limits = torch.finfo(logits.dtype)
    moved = torch.where(seen > 0, seen / penalty, seen * penalty).clamp(limits.min, limits.max)
    changed = logits.clone()
    changed[places] = torch.where(seen.isfinite(), moved, seen).to(logits.dtype)  # impossible tokens stay impossible
    return changed


def candidates(logits: Tensor, sampling: Sampling) -> Candidates:
    """Temperature, then top_k, top_p and min_p. `top_p` keeps the token that crosses it, so at least one stays.

    Args:
        logits: [V] float32, penalties applied.
        sampling: `temperature` must be above 0.
    """
    scaled = (logits.double() - logits.max()) / sampling.temperature  # at most 0: finite with any temperature
    log_total = torch.logsumexp(scaled, dim=0)
    size = logits.shape[0]
    if 0 < sampling.top_k < size:
        kept, ids = torch.topk(scaled, sampling.top_k)
        log_total = torch.logsumexp(kept, dim=0)
    else:
        kept, ids = torch.topk(scaled, min(FIRST_CANDIDATES, size))
        if sampling.top_p >= 1.0 or (kept - log_total).exp().sum() < sampling.top_p:
            kept, ids = torch.sort(scaled, descending=True)
    probabilities = (kept - log_total).exp()
    if sampling.top_p < 1.0:
        before = probabilities.cumsum(0) - probabilities
        stay = before < sampling.top_p
        stay[0] = True
        probabilities, ids = probabilities[stay], ids[stay]
    if sampling.min_p > 0.0:
        stay = probabilities >= sampling.min_p * probabilities[0]
        probabilities, ids = probabilities[stay], ids[stay]
    return Candidates(ids, (probabilities / probabilities.sum()).float())


class Sampler:
    """Picks the tokens of one answer. The same seed, prompt and logits give the same tokens."""

    def __init__(self, sampling: Sampling, prompt_ids: Collection[int]) -> None:
        self._sampling = sampling
        self._seen = set(prompt_ids)
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def pick(self, logits: Tensor) -> int:
        """The next token id.

        Raises:
            BadLogitsError: there is a NaN or no finite logit.
        """
        best = logits.max()
        if not torch.isfinite(best):  # max is NaN as soon as one logit is
            raise BadLogitsError(
                f"The model computed no numbers for the next token: the best of {logits.shape[0]:,} is {best.item()}.",
                "Ask again; if every answer ends so, download the model again, or choose a copy in bf16.",
            )
        logits = penalise_repeats(logits, self._seen, self._sampling.repetition_penalty)
        token_id = self._greedy(logits) if self._sampling.temperature == 0 else self._drawn(logits)
        self._seen.add(token_id)
        return token_id

    def _greedy(self, logits: Tensor) -> int:
        return int(logits.argmax())

    def _drawn(self, logits: Tensor) -> int:
        choice = candidates(logits, self._sampling)
        place = torch.multinomial(choice.probabilities, 1, generator=self._generator)
        return int(choice.ids[place])
