"""How fast a split will answer: from figures measured on this PC and from earlier runs, always as a range.

What a token costs is a sum, because the engine computes one layer after another:

- active experts of a layer, top_k / E of its bank, are read by the processor that computes them, as fast as weights of
  their format were: packed ones are unpacked on the way;
- experts of pinned layers that are in no slot cross to the GPU first. How many are is not known before a run: as many
  as slots hold if all experts are chosen equally often, fewer misses (the square root of that) if some are favoured;
- the other weights are read once, the embedding at most in part; keys and values of an empty to a full context;
- every layer calls dozens of operations, whose time was measured for one expert. The rest of a layer takes as long as
  the calls of 10 to 40 experts do: 0.3 to 0.9 ms beside 24 µs an expert, seen with small Mixtral and Qwen3 layers.

A run of the same split beats all of this. Runs of another split of the model correct the sum by what it was off there.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from engine.contract.estimate import banks, kv_traffic_bytes
from engine.contract.formats import WeightFormat
from engine.contract.load_peak import largest_dense_tensor_bytes
from engine.contract.plan import MemoryPlan, Tier
from engine.contract.rates import KernelRates, MeasuredRates
from engine.contract.record import Record
from engine.contract.shape import ModelShape

NOT_MEASURED = "not measured on this PC"
LEAST_ANSWER_TOKENS = 16  # fewer say little about a rate
LEAST_PROMPT_TOKENS = 64
_LAYER_CALLS = (10, 40)  # what a decoder layer calls beside its experts, counted in experts; least and most
_MOST_NEAR_RUNS = 16  # of other splits; the newest say most of this PC as it is now
_RUN_SPREAD = 0.10  # a single run is believed to a tenth
_OTHER_SPLIT_SPREAD = 0.20
_FIGURES_SPREAD = 0.15  # figures of one moment: the same PC measured half an hour later

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
    """Tokens a second."""

    decode_tok_s: Range
    prefill_tok_s: Range | None  # None: only decoding was seen
    basis: Basis
    runs: int = 0  # that were looked at

    def prefill_s(self, prompt_tokens: int) -> Range | None:
        """Seconds until the first token of a prompt of this length; `slow` is the longer one."""
        if self.prefill_tok_s is None:
            return None
        return Range(prompt_tokens / self.prefill_tok_s.slow, prompt_tokens / self.prefill_tok_s.fast)


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
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        decode_tok_s=decode_tok_s,
        prefill_tok_s=prefill_tok_s if prefill_tok_s and prompt_tokens >= LEAST_PROMPT_TOKENS else None,
    )


def predict(plan: MemoryPlan, rates: MeasuredRates | None, runs: Sequence[SpeedRun] = ()) -> Speed | None:
    """Rates of a plan; None where neither figures nor runs tell. A simulated GPU has a speed of its own: its runs.

    Figures count only if every format of the model was measured, and with the kernels of now.
    """
    model, tiers = _model(plan), _tiers(plan)
    mine = [run for run in runs if run.model == model and run.device == plan.device]
    same = [run for run in mine if run.tiers == tiers]
    summed = None if plan.device == "simulated" or rates is None else _summed(plan, rates)
    if same:
        decode = _seen([run.decode_tok_s for run in same])
        prefill = [run.prefill_tok_s for run in same if run.prefill_tok_s is not None]
        expected = None if summed is None else summed.prefill_tok_s
        return Speed(decode, _seen(prefill) if prefill else expected, "runs of this split", len(same))
    if summed is None or rates is None:
        return None
    factors = _off(plan, mine[-_MOST_NEAR_RUNS:], rates)
    if not factors:
        return summed
    factor = statistics.median(factors)
    return Speed(
        _around(summed.decode_tok_s.middle * factor, _OTHER_SPLIT_SPREAD),
        summed.prefill_tok_s,
        "runs of this model",
        len(factors),
    )


def needed_formats(shape: ModelShape) -> tuple[WeightFormat, ...]:
    """Formats of all weights of a model: of its experts, and of what every token uses."""
    used = {form for storage in shape.layer_storages for form in storage.formats}
    return tuple(form for form in WeightFormat if form in used | {shape.dense_format})


def not_measured(plan: MemoryPlan, rates: MeasuredRates | None) -> tuple[WeightFormat, ...]:
    """Formats of a model without figures on the processors that its plan uses; all of them before a measurement."""
    needed = needed_formats(plan.model)
    if rates is None or not rates.current:
        return needed
    tables = [rates.cpu] + ([rates.gpu] if plan.device == "cuda" else [])
    return tuple(form for form in needed if any(form not in table for table in tables))


def speed_line(speed: Speed | None, prompt_tokens: int = 4096) -> str:
    """ "About 9 to 14 tokens a second; a prompt of 4,096 tokens takes 20 to 31 s (figures of this PC)"."""
    if speed is None:
        return f"Speed: {NOT_MEASURED}"
    waiting = speed.prefill_s(prompt_tokens)
    prompt = (
        ""
        if waiting is None
        else (f"; a prompt of {prompt_tokens:,} tokens takes {_span(waiting.fast, waiting.slow)} s")
    )
    return f"About {_span(speed.decode_tok_s.slow, speed.decode_tok_s.fast)} tokens a second{prompt} ({speed.basis})"


def number_span(rate: Range) -> str:
    """ "9.3 to 14", or "9.3" where both ends say the same."""
    return _span(rate.slow, rate.fast)


@dataclass(frozen=True, slots=True)
class _Layers:
    """The layers with experts of one tier: bytes, and seconds to read all of them once and per operation on all."""

    bytes: int = 0
    read_s: float = 0.0
    operation_s: float = 0.0  # times the operations of one layer


def _summed(plan: MemoryPlan, rates: MeasuredRates) -> Speed | None:
    """By the figures alone; None where one of them is missing for these weights."""
    shape, on_gpu = plan.model, plan.device == "cuda"
    if not_measured(plan, rates) or (on_gpu and rates.pinned_copy_bytes_s is None):
        return None
    dense = (rates.gpu if on_gpu else rates.cpu)[shape.dense_format]
    held = _held(plan, rates)
    call_s = (rates.gpu_call_s if on_gpu else None) or rates.call_s
    fast_calls_s, slow_calls_s = (
        call_s * (len(shape.layers) * around + len(plan.tiers) * shape.experts.top_k) for around in _LAYER_CALLS
    )
    slow = _token_s(plan, rates, held, dense, slowest=True) + slow_calls_s
    fast = _token_s(plan, rates, held, dense, slowest=False) + fast_calls_s
    chunk_slow, chunk_fast = _chunk_s(plan, rates, held, dense)
    return Speed(
        _wider(Range(1 / slow, 1 / fast)),
        _wider(
            Range(plan.prefill_chunk / (chunk_slow + slow_calls_s), plan.prefill_chunk / (chunk_fast + fast_calls_s))
        ),
        "figures of this PC",
    )


def _held(plan: MemoryPlan, rates: MeasuredRates) -> dict[Tier, _Layers]:
    """What lies in each tier, and how fast the processor that computes it goes through it.

    A layer of several formats is as fast as the slowest of them.
    """
    found = dict.fromkeys(Tier, _Layers())
    for tier, size, storage in zip(plan.tiers, banks(plan.model), plan.model.layer_storages, strict=True):
        table = rates.gpu if plan.device == "cuda" and tier in (Tier.VRAM, Tier.PINNED) else rates.cpu
        kernels = [table[form] for form in storage.formats]
        before = found[tier]
        found[tier] = _Layers(
            before.bytes + size,
            before.read_s + size / min(kernel.bytes_s for kernel in kernels),
            before.operation_s + 1 / min(kernel.flops_s for kernel in kernels),
        )
    return found


def _token_s(
    plan: MemoryPlan, rates: MeasuredRates, held: dict[Tier, _Layers], dense: KernelRates, *, slowest: bool
) -> float:
    """Seconds of reading weights for one token."""
    shape = plan.model
    active = shape.experts.top_k / shape.experts.n_experts
    other = shape.dense_bytes + kv_traffic_bytes(shape, plan.context_tokens)
    if not slowest:
        other = max(shape.dense_bytes - largest_dense_tensor_bytes(shape), 0)
    seconds = other / dense.bytes_s + active * sum(layers.read_s for layers in held.values())
    pinned = held[Tier.PINNED].bytes
    if pinned and rates.pinned_copy_bytes_s is not None:
        share = min(1.0, plan.expert_slots / (plan.layers_in(Tier.PINNED) * shape.experts.n_experts))
        misses = 1 - (share if slowest else share**0.5)
        seconds += misses * active * pinned / rates.pinned_copy_bytes_s
    return seconds


def _chunk_s(
    plan: MemoryPlan, rates: MeasuredRates, held: dict[Tier, _Layers], dense: KernelRates
) -> tuple[float, float]:
    """Seconds of one prefill chunk, slow and fast: computing and reading one after the other, or at the same time."""
    shape, tokens = plan.model, plan.prefill_chunk
    chosen = min(1.0, tokens * shape.experts.top_k / shape.experts.n_experts)  # share of the experts that are used
    experts = shape.experts
    matrices = 3 if experts.has_gate else 2
    layer_operations = 2 * tokens * experts.top_k * matrices * experts.width * experts.inner
    compute = 2 * tokens * shape.dense_bytes / shape.value_bytes / dense.flops_s
    compute += layer_operations * sum(layers.operation_s for layers in held.values())
    read = shape.dense_bytes / dense.bytes_s + chosen * sum(layers.read_s for layers in held.values())
    pinned = held[Tier.PINNED].bytes
    if pinned and rates.pinned_copy_bytes_s is not None:
        read += chosen * pinned / rates.pinned_copy_bytes_s
    return compute + read, max(compute, read)


def _off(plan: MemoryPlan, runs: Sequence[SpeedRun], rates: MeasuredRates) -> list[float]:
    """By what factor the sum was wrong for each run of another split of this model."""
    expected: dict[tuple[tuple[int, int, int, int], int], float | None] = {}  # most runs share a split
    factors = []
    for run in runs:
        split = run.tiers, run.expert_slots
        if split not in expected:
            expected[split] = _expected(plan, run, rates)
        if (middle := expected[split]) is not None:
            factors.append(run.decode_tok_s / middle)
    return factors


def _expected(plan: MemoryPlan, run: SpeedRun, rates: MeasuredRates) -> float | None:
    """What the sum says of the split of a run."""
    if sum(run.tiers) != len(plan.tiers):
        return None
    tiers = tuple(tier for tier, count in zip(Tier, run.tiers, strict=True) for _ in range(count))
    summed = _summed(plan.model_copy(update={"tiers": tiers, "expert_slots": run.expert_slots}), rates)
    return None if summed is None else summed.decode_tok_s.middle


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
