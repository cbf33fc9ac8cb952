"""How fast a split will answer and read prompts: from runs and figures of this PC, always as a range.

A run of the same split beats the sums of engine figures (app/planning/figures.py). Runs of another split of the model
correct a sum by what it was off there; decoding and prompts are corrected apart.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from app.planning.figures import Figures
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.rates import MeasuredRates
from engine.contract.record import Record

NOT_MEASURED = "not measured on this PC"
LEAST_ANSWER_TOKENS = 16  # fewer say little about a rate
LEAST_PROMPT_TOKENS = 64
USUAL_PROMPT_TOKENS = 4096  # a long question with a file: what a wait is told for, where figures tell it
_MOST_NEAR_RUNS = 16  # of other splits; the newest say most of this PC as it is now
_RUN_SPREAD = 0.10  # a single run is believed to a tenth
_OTHER_SPLIT_SPREAD = 0.20
_FIGURES_SPREAD = 0.15  # figures of one moment: the same PC measured half an hour later
PROMPT_SPREAD = 1.6  # tests/bench/speed.py saw a factor of 1.45 in the middle of its rows

Basis = Literal["runs of this split", "runs of this model", "figures of this PC"]


class SpeedRun(Record):
    """Rates of one answered request, and the split it ran on."""

    model: str
    device: str
    tiers: tuple[int, int, int, int] = Field(description="layers in vram, pinned, locked, pageable")
    expert_slots: int = Field(ge=0)
    prompt_tokens: int = Field(ge=0)
    answer_tokens: int = Field(ge=0)
    decode_tok_s: float = Field(gt=0)
    prefill_tok_s: float | None = Field(default=None, gt=0)
    ring_staged: bool | None = Field(default=None, description="as in the plan; None: an earlier version kept none")


@dataclass(frozen=True, slots=True)
class Range:
    """From the slowest to the fastest that is expected."""

    slow: float
    fast: float

    @property
    def middle(self) -> float:
        """The geometric mean: rates are off by factors."""
        return math.sqrt(self.slow * self.fast)


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second: of an answer, and of a prompt of `prompt_tokens` of which nothing is in the KV cache."""

    decode_tok_s: Range
    basis: Basis
    runs: int = 0  # that were looked at
    prefill_tok_s: Range | None = None  # None: only decoding was seen
    prompt_tokens: int = 0
    prompt_basis: Basis = "figures of this PC"

    @property
    def ttft_s(self) -> Range | None:
        """Seconds until the first token of the answer to such a prompt; `slow` is the longer time."""
        rate = self.prefill_tok_s
        return None if rate is None else Range(self.prompt_tokens / rate.slow, self.prompt_tokens / rate.fast)


def run_of(
    plan: MemoryPlan,
    *,
    prompt_tokens: int,
    answer_tokens: int,
    decode_tok_s: float | None,
    prefill_tok_s: float | None,
) -> SpeedRun | None:
    """What is worth remembering of a request; None where the answer was too short to tell."""
    if not decode_tok_s or answer_tokens < LEAST_ANSWER_TOKENS:
        return None
    return SpeedRun(
        model=_model(plan),
        device=plan.device,
        tiers=_tiers(plan),
        expert_slots=plan.expert_slots,
        ring_staged=plan.ring_staged,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        decode_tok_s=decode_tok_s,
        prefill_tok_s=prefill_tok_s if prefill_tok_s and prompt_tokens >= LEAST_PROMPT_TOKENS else None,
    )


def predict(plan: MemoryPlan, rates: MeasuredRates | None, runs: Sequence[SpeedRun] = ()) -> Speed | None:
    """Rates of a plan; None where neither figures nor runs tell. A simulated GPU has a speed of its own: its runs.

    Figures count only if every format of the model was measured, and with the kernels of now.
    """
    model, tiers, figures = _model(plan), _tiers(plan), Figures.of(plan, rates)
    mine = [run for run in runs if run.model == model and run.device == plan.device]
    same = [run for run in mine if run.tiers == tiers]
    near = _Near(plan, rates, mine[-_MOST_NEAR_RUNS:])
    decode = _decode(figures, same, near)
    return None if decode is None else _with_prompts(decode, plan, figures, same, near)


class _Near:
    """Runs of any split of the model, and by what factor the sums of figures were wrong for each."""

    def __init__(self, plan: MemoryPlan, rates: MeasuredRates | None, runs: Sequence[SpeedRun]) -> None:
        self._plan = plan
        self._rates = rates
        self._runs = runs
        self._known: dict[tuple[object, ...], Figures | None] = {}  # most runs share a split

    def decode_factors(self) -> list[float]:
        """Seen rates over expected ones."""
        found = ((run, self._figures(run)) for run in self._runs)
        return [run.decode_tok_s / _decode_range(figures).middle for run, figures in found if figures is not None]

    def prefill_factors(self, runs: Sequence[SpeedRun] | None = None) -> list[float]:
        """The same of prompts, each of its own length; `runs` None: all."""
        factors = []
        for run in self._runs if runs is None else runs:
            figures = self._figures(run) if run.prefill_tok_s is not None and run.prompt_tokens else None
            if run.prefill_tok_s is not None and figures is not None:
                factors.append(run.prefill_tok_s / _prefill_range(figures, run.prompt_tokens).middle)
        return factors

    def _figures(self, run: SpeedRun) -> Figures | None:
        """Of the split of a run; None where nothing was measured, or the model had other layers then."""
        staged = self._plan.ring_staged if run.ring_staged is None else run.ring_staged
        split = run.tiers, run.expert_slots, staged
        if split not in self._known:
            self._known[split] = self._figures_of(*split)
        return self._known[split]

    def _figures_of(self, counts: tuple[int, int, int, int], slots: int, staged: bool) -> Figures | None:
        if sum(counts) != len(self._plan.tiers):
            return None
        tiers = tuple(tier for tier, count in zip(Tier, counts, strict=True) for _ in range(count))
        split = {"tiers": tiers, "expert_slots": slots, "ring_staged": staged}
        return Figures.of(self._plan.model_copy(update=split), self._rates)


def _decode(figures: Figures | None, same: Sequence[SpeedRun], near: _Near) -> Speed | None:
    if same:
        return Speed(_seen([run.decode_tok_s for run in same]), "runs of this split", len(same))
    if figures is None:
        return None
    summed = _decode_range(figures)
    if factors := near.decode_factors():
        middle = summed.middle * statistics.median(factors)
        return Speed(_around(middle, _OTHER_SPLIT_SPREAD), "runs of this model", len(factors))
    return Speed(_wider(summed), "figures of this PC")


def _with_prompts(
    decode: Speed, plan: MemoryPlan, figures: Figures | None, same: Sequence[SpeedRun], near: _Near
) -> Speed:
    """Prompts too. Without figures their rate is told for prompts as long as those that were seen."""
    timed = [run for run in same if run.prefill_tok_s is not None]
    if figures is None:
        rates = [run.prefill_tok_s for run in timed if run.prefill_tok_s is not None]
        usual = int(statistics.median(run.prompt_tokens for run in timed)) if timed else 0
        return replace(
            decode,
            prefill_tok_s=_seen(rates) if rates else None,
            prompt_tokens=usual,
            prompt_basis="runs of this split",
        )
    tokens = max(min(USUAL_PROMPT_TOKENS, plan.context_tokens - 1), 1)
    summed = _prefill_range(figures, tokens)
    found, basis = Range(summed.slow / PROMPT_SPREAD, summed.fast * PROMPT_SPREAD), decode.prompt_basis
    if factors := near.prefill_factors(timed):
        found, basis = _seen([summed.middle * factor for factor in factors]), "runs of this split"
    elif factors := near.prefill_factors():
        middle = summed.middle * statistics.median(factors)
        found, basis = _around(middle, _OTHER_SPLIT_SPREAD), "runs of this model"
    return replace(decode, prefill_tok_s=found, prompt_tokens=tokens, prompt_basis=basis)


def _decode_range(figures: Figures) -> Range:
    return Range(1 / figures.token_s(slowest=True), 1 / figures.token_s(slowest=False))


def _prefill_range(figures: Figures, tokens: int) -> Range:
    return Range(tokens / figures.prompt_s(tokens, slowest=True), tokens / figures.prompt_s(tokens, slowest=False))


def speed_line(speed: Speed | None) -> str:
    """ "About 9 to 14 tokens a second; a prompt of 4,096 tokens takes 20 to 31 s (figures of this PC)"."""
    if speed is None:
        return f"Speed: {NOT_MEASURED}"
    answer = f"About {_span(speed.decode_tok_s.slow, speed.decode_tok_s.fast)} tokens a second"
    waiting = speed.ttft_s
    if waiting is None:
        return f"{answer} ({speed.basis})"
    prompt = f"a prompt of {speed.prompt_tokens:,} tokens takes {_span(waiting.fast, waiting.slow)} s"
    if speed.basis == speed.prompt_basis:
        return f"{answer}; {prompt} ({speed.basis})"
    return f"{answer} ({speed.basis}); {prompt} ({speed.prompt_basis})"


def number_span(rate: Range) -> str:
    """ "9.3 to 14", or "9.3" where both ends say the same."""
    return _span(rate.slow, rate.fast)


def _model(plan: MemoryPlan) -> str:
    packed = ", KV cache in fp8" if plan.kv_dtype == "fp8" else ""  # slower at long contexts
    return f"{plan.model.name} ({plan.model.stored_as}{packed})"


def _tiers(plan: MemoryPlan) -> tuple[int, int, int, int]:
    vram, pinned, locked, pageable = (plan.layers_in(tier) for tier in Tier)
    return vram, pinned, locked, pageable


def _seen(values: Sequence[float]) -> Range:
    """The range of what was seen; a single value, or values closer together than that, are widened a little."""
    around = _around(statistics.median(values), _RUN_SPREAD)
    return Range(min(min(values), around.slow), max(max(values), around.fast))


def _wider(found: Range) -> Range:
    return Range(found.slow / (1 + _FIGURES_SPREAD), found.fast * (1 + _FIGURES_SPREAD))


def _around(middle: float, spread: float) -> Range:
    return Range(middle / (1 + spread), middle * (1 + spread))


def _span(least: float, most: float) -> str:
    low, high = _number(least), _number(most)
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    """Two digits that mean something: 0.42, 3.1, 27, 310."""
    if value < 1:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
