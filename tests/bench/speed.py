"""How well a speed is predicted: `python -m tests.bench.speed [--model DIR] [--bank-mib 512] [--rounds 3]`.

Figures of this PC are measured as "Measure now" does; then the model really decodes and reads prompts, on the CPU and
on a simulated GPU with all layers in one tier and with a mixture; then the figures are measured again, for other
programs come and go. Every row says what both measurements predict, what was seen, and the ratio of seen to the middle
of what was predicted; the last line is one JSON object.

A simulated GPU is this CPU with copies that nothing runs beside: its rows show whether the sums count the right work,
not how well they tell the speed of a GPU.

The demo model on two cores that others kept busy (load 7), all layers in one place: answers came at 0.65 to 1.75 of the
middle, prompts of 512 and 1,500 tokens at 0.64 to 1.3 on the CPU and at 0.36 to 0.92 on a simulated GPU, of 64 tokens
at 0.3 to 1.1. Half of the rows were off by a factor of 1.45 or less, the worst one by 3.4.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from engine.threads import prepare_threads

if TYPE_CHECKING:  # torch is loaded after the thread settings
    from engine.contract.plan import MemoryPlan
    from engine.contract.shape import ModelShape
    from engine.model.build import Drivers
    from engine.model.loaded import LoadedModel

SPLITS = ("cpu", "v", "p", "l", "vpl")  # letters in turn over the layers: vram, pinned, locked
PROMPTS = (64, 512, 1500)
ANSWER_TOKENS = 48
ENDS = (True, False)
CONTEXT_TOKENS, CHUNK = 2048, 512


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens a second of one kind of work on one split."""

    split: str
    work: str
    slow: float
    fast: float
    seen: float

    @property
    def ratio(self) -> float:
        """Seen over expected: 1 is right, 0.5 half as fast as expected."""
        return self.seen / math.sqrt(self.slow * self.fast)

    @override
    def __str__(self) -> str:
        inside = "" if self.slow <= self.seen <= self.fast else "  outside"
        told = f"{self.slow:8.1f} to {self.fast:8.1f}"
        return f"{self.split:4} {self.work:12} predicted {told}, seen {self.seen:8.1f}, ratio {self.ratio:.2f}{inside}"


def main(arguments: list[str] | None = None) -> int:
    """Measure, predict, run, compare. Returns 0: an error of a prediction is a result."""
    from app.paths import demo_model_dir

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=demo_model_dir())
    parser.add_argument("--bank-mib", type=int, default=512, help="of weights that are measured with")
    parser.add_argument("--rounds", type=int, default=3, help="how often each work is timed; the median counts")
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=SPLITS)
    options = parser.parse_args(arguments)
    prepare_threads()
    rows = [row for split in options.splits for row in compare(options.model, split, options.bank_mib, options.rounds)]
    found = [{"split": row.split, "work": row.work, "seen": row.seen, "ratio": round(row.ratio, 3)} for row in rows]
    off = [max(row.ratio, 1 / row.ratio) for row in rows]
    summary = {"model": options.model.name, "rows": found, "median_factor_off": round(statistics.median(off), 2)}
    print(json.dumps({**summary, "worst_factor_off": round(max(off), 2)}))
    return 0


def compare(folder: Path, split: str, bank_mib: int, rounds: int) -> list[Row]:
    """The rows of one split."""
    import torch

    from app.planning.figures import Figures, needed_formats
    from engine.contract.checkpoint import read_shape
    from engine.experts.rates import measure
    from engine.model.build import load_model

    shape = read_shape(folder)
    plan, drivers = plan_for(folder, shape, split)

    def figures() -> Figures:
        kind: Literal["cpu", "simulated"] = "cpu" if split == "cpu" else "simulated"
        return Figures(plan, measure(kind, None, bank_mib << 20, needed_formats(shape)))

    both = [figures()]
    model = load_model(plan, report=lambda _: None, cancelled=lambda: False, drivers=drivers)
    seen: dict[int, tuple[float, float]] = {}
    random = torch.Generator().manual_seed(1)
    try:
        for tokens in PROMPTS:
            prompt = torch.randint(4, shape.vocab_size, (tokens,), generator=random).tolist()
            seen[tokens] = seconds(model, prompt, rounds)
    finally:
        model.close()
    both.append(figures())
    rows = [
        _row(split, f"prompt {tokens}", tokens, [one.prompt_s(tokens, slowest=end) for one in both for end in ENDS], s)
        for tokens, (s, _) in seen.items()
    ]
    answer_s = statistics.median(token_s for _, token_s in seen.values())
    rows.append(_row(split, "answer", 1, [one.token_s(slowest=end) for one in both for end in ENDS], answer_s))
    for row in rows:
        print(row, flush=True)
    return rows


def _row(split: str, work: str, tokens: int, expected_s: Sequence[float], seen_s: float) -> Row:
    return Row(split, work, tokens / max(expected_s), tokens / min(expected_s), tokens / seen_s)


def seconds(model: "LoadedModel", prompt: Sequence[int], rounds: int) -> tuple[float, float]:
    """Medians: of the prompt, and of one answer token behind it."""
    prompts, tokens = [], []
    for _ in range(rounds + 1):
        model.reset()
        began = time.perf_counter()
        logits = model.prefill(prompt, on_progress=lambda _: None, cancelled=lambda: False)
        prompts.append(time.perf_counter() - began)
        began = time.perf_counter()
        for _ in range(ANSWER_TOKENS):
            logits = model.decode(int(logits.argmax()))
        tokens.append((time.perf_counter() - began) / ANSWER_TOKENS)
    return statistics.median(prompts[1:]), statistics.median(tokens[1:])  # the first round warms up


def plan_for(folder: Path, shape: "ModelShape", split: str) -> "tuple[MemoryPlan, Drivers]":
    """A plan with slots for a quarter of the pinned experts, and drivers whose times the engine measures."""
    from engine.banks.simulated_device import SimulatedDevice
    from engine.contract.estimate import Costs, Split, ledger, most_ring_experts
    from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier
    from engine.model.build import Drivers, drivers_for

    class Measured(SimulatedDevice):
        """Passes for a GPU whose times mean something, so that the engine chooses by them."""

        simulated = False

    on_gpu = split != "cpu"
    names: dict[str, Tier] = {"v": Tier.VRAM, "p": Tier.PINNED, "l": Tier.LOCKED}
    letters = split if on_gpu else "l"
    tiers = tuple(names[letters[index % len(letters)]] for index in range(len(shape.moe_layers)))
    pinned = tiers.count(Tier.PINNED) * shape.experts.n_experts
    outside = on_gpu and any(tier is not Tier.VRAM for tier in tiers)
    found = Split(
        context_tokens=CONTEXT_TOKENS,
        prefill_chunk=CHUNK,
        expert_slots=max(pinned // 4, 2 * shape.experts.top_k) if pinned else 0,
        tiers=tiers,
        on_gpu=on_gpu,
        ring_experts=most_ring_experts(shape) if outside else 0,
        ring_staged=on_gpu and Tier.LOCKED in tiers,
    )
    limits: Any = SimulatedGpu(vram_bytes=8 << 30, pin_bytes=8 << 30) if on_gpu else None
    plan = MemoryPlan(
        model_dir=str(folder),
        model=shape,
        device="simulated" if on_gpu else "cpu",
        simulated=limits,
        ledger=ledger(shape, found, Costs()),
        budgets=dict.fromkeys(Pool),
        **found.model_dump(exclude={"on_gpu"}),
    )
    drivers = drivers_for(plan)
    if on_gpu:
        drivers = Drivers(Measured(limits), drivers.allocator, drivers.locker)
    return plan, drivers


if __name__ == "__main__":
    sys.exit(main())
