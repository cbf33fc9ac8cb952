"""One check of everything that needs an NVIDIA GPU: `python -m tests.bench.gpu_check [--out DIR] [--seconds 330]`.

Pins and refusals, canary copies, copy rates, and a random checkpoint of Qwen3-MoE's shape under several splits: rates,
tokens, residency, slots, memory given back. Prints a table and writes gpu_check.json into DIR, $OUT or the folder it is
called in; returns 1 if a check failed. Without a GPU all of it runs on the simulated driver, which says so: then times
are those of this CPU, and only the checks count.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.threads import prepare_threads

if TYPE_CHECKING:  # torch is loaded after the thread settings
    from engine.banks.devices import Device
    from engine.contract.plan import MemoryPlan
    from engine.contract.rates import MeasuredRates
    from engine.contract.shape import ModelShape
    from engine.model.loaded import LoadedModel

MIB = 1 << 20
PIN_BYTES = 64 * MIB
PROMPT_TOKENS, ANSWER_TOKENS = 512, 32
SEED = 3
SPLITS = ("v", "p", "l", "vpl", "pl")  # letters in turn over the layers: vram, pinned, locked
NEAR_BYTES = 96 * MIB  # what a driver may keep for itself after everything was given back
_SIZES: dict[str, dict[str, Any]] = {
    "small": {"hidden_size": 256, "moe_intermediate_size": 128, "num_experts": 32, "num_hidden_layers": 4},
    "real": {"hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 64, "num_hidden_layers": 6},
}


@dataclass
class Report:
    """What was found."""

    began_s: float = field(default_factory=time.monotonic)
    facts: dict[str, Any] = field(default_factory=dict)
    rates: "MeasuredRates | None" = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    splits: list[dict[str, Any]] = field(default_factory=list)

    def check(self, what: str, holds: bool, **numbers: Any) -> None:
        """Note one claim."""
        self.checks.append({"what": what, "holds": bool(holds), **numbers})
        words = ", ".join(f"{name} {value}" for name, value in numbers.items())
        print(f"{'ok  ' if holds else 'FAIL'} {what}{': ' if words else ''}{words}", flush=True)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s


def main(arguments: list[str] | None = None) -> int:
    """Run all parts that the time allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=330, help="no new part begins after this")
    parser.add_argument("--size", choices=tuple(_SIZES), help="of the checkpoint; default: real with a GPU")
    parser.add_argument("--simulated", action="store_true", help="even where there is a GPU")
    options = parser.parse_args(arguments)
    prepare_threads()
    import torch

    real = torch.cuda.is_available() and not options.simulated
    report = Report()
    report.facts = {
        "device": torch.cuda.get_device_name(0) if real else "simulated GPU: no figure here is one of a GPU",
        "simulated": not real,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(report.facts))
    parts: list[Callable[[], None]] = [
        lambda: _pins(report, real),
        lambda: _rates(report, real),
        lambda: _splits(report, real, options.size or ("real" if real else "small"), options.seconds),
    ]
    for part in parts:
        if report.elapsed_s < options.seconds:
            part()
    return _finish(report, options.out)


def _device(real: bool) -> "Device":
    if real:
        from engine.banks.cuda_device import CudaDevice

        return CudaDevice(None)
    from engine.banks.simulated_device import SimulatedDevice
    from engine.contract.plan import SimulatedGpu

    return SimulatedDevice(SimulatedGpu(vram_bytes=4 << 30, pin_bytes=4 << 30))


def _pins(report: Report, real: bool) -> None:
    """A pin, a copy out of it, a refusal, and what is possible after it."""
    import torch

    from engine.system.protocols import PinRefusedError
    from engine.system.select import host_allocator

    device, allocator = _device(real), host_allocator()
    blocks = [allocator.allocate(PIN_BYTES) for _ in range(2)]
    first, second = (torch.frombuffer(block.buffer, dtype=torch.uint8) for block in blocks)
    pattern = (torch.arange(PIN_BYTES) % 251).to(torch.uint8)
    first.copy_(pattern)
    second.copy_(pattern.flip(0))
    began = time.perf_counter()
    device.pin(blocks[0].address, PIN_BYTES)
    report.check("memory is pinned", True, ms=round((time.perf_counter() - began) * 1e3, 2), bytes=PIN_BYTES)
    target = device.allocate(PIN_BYTES, "check")
    for name, source in (("pinned", first), ("pageable", second)):
        device.copy_in(target, source, device.mark())
        device.synchronize()
        report.check(f"a copy out of {name} memory arrives whole", torch.equal(target.cpu(), source))
    refusals = []
    for block in (blocks[0], blocks[1]):  # the first is pinned already; the second could be
        try:
            device.pin(block.address, PIN_BYTES)
        except PinRefusedError as refusal:
            refusals.append(refusal.sentence)
    report.check("pinning twice is refused", len(refusals) > 0, words=refusals[:1])
    report.check("the first refusal is final", len(refusals) == 2, words=refusals[1:])
    device.copy_in(target, first, device.mark())
    device.synchronize()
    sums = int((target[:1000].to(torch.int32) + 1).sum())
    report.check("the error of a refused call does not meet the next one", sums == int(pattern[:1000].sum()) + 1000)
    device.unpin(blocks[0].address)
    device.release(PIN_BYTES, "check")
    del target, first, second, source
    device.close()
    for block in blocks:
        block.free()
    again, block = _device(real), allocator.allocate(PIN_BYTES)
    try:
        again.pin(block.address, PIN_BYTES)
        again.unpin(block.address)
        report.check("after unpinning memory can be pinned again", True)
    except PinRefusedError as refusal:
        report.check("after unpinning memory can be pinned again", False, words=refusal.sentence)
    again.close()
    block.free()


def _rates(report: Report, real: bool) -> None:
    """As the program measures them for its predictions."""
    from engine.experts.rates import measure

    report.rates = measure("cuda" if real else "simulated", None, 256 * MIB)
    figures = report.rates.model_dump(mode="json", exclude_none=True)
    report.facts["rates"] = figures
    for name in ("pinned_copy_bytes_s", "pageable_copy_bytes_s", "memcpy_bytes_s"):
        if name in figures:
            print(f"     {name.removesuffix('_bytes_s').replace('_', ' ')}: {figures[name] / 1e9:.1f} GB/s")


def _splits(report: Report, real: bool, size: str, seconds: float) -> None:
    import torch

    from engine.contract.checkpoint import read_shape

    with tempfile.TemporaryDirectory(prefix="splitpin-gpu-") as name:
        folder = Path(name) / "model"
        began = time.monotonic()
        _checkpoint(folder, _SIZES[size])
        shape = read_shape(folder)
        report.facts["model"] = {"size": size, **_SIZES[size], "written_s": round(time.monotonic() - began, 1)}
        answers: dict[str, list[int]] = {}
        prompt = torch.randint(4, shape.vocab_size, (PROMPT_TOKENS,), generator=torch.Generator().manual_seed(SEED))
        for letters in SPLITS:
            if report.elapsed_s > seconds:
                report.check(f"time for split {letters}", False)
                continue
            plan = _plan(folder, shape, letters, real)
            row, answers[letters] = _one_split(report, plan, letters, prompt.tolist(), real)
            report.splits.append(row)
        _compare(report, answers, real)


def _checkpoint(folder: Path, size: dict[str, Any]) -> None:
    """Random weights, the tokenizer of the tests."""
    import torch
    import transformers

    from tests.support.tiny_models import tiny_tokenizer

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(SEED)
    config = transformers.Qwen3MoeConfig(
        **size, vocab_size=4096, num_attention_heads=16, num_key_value_heads=4, num_experts_per_tok=8,
        max_position_embeddings=2048, intermediate_size=512, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        norm_topk_prob=True,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder, max_shard_size="1GB")
    tiny_tokenizer().save_pretrained(folder)


def _plan(folder: Path, shape: "ModelShape", letters: str, real: bool) -> "MemoryPlan":
    """Layers in turn in the tiers of the letters; slots for a quarter of the pinned experts, and a ring."""
    from engine.contract.estimate import Costs, Split, ledger, most_ring_experts
    from engine.contract.plan import MemoryPlan, Pool, SimulatedGpu, Tier

    names: dict[str, Tier] = {"v": Tier.VRAM, "p": Tier.PINNED, "l": Tier.LOCKED}
    tiers = tuple(names[letters[index % len(letters)]] for index in range(len(shape.moe_layers)))
    pinned, outside = tiers.count(Tier.PINNED), any(tier is not Tier.VRAM for tier in tiers)
    split = Split(
        context_tokens=1024,
        prefill_chunk=256,
        expert_slots=max(pinned * shape.experts.n_experts // 4, 2 * shape.experts.top_k) if pinned else 0,
        tiers=tiers,
        on_gpu=True,
        ring_experts=most_ring_experts(shape) if outside else 0,
        ring_staged=Tier.LOCKED in tiers,
    )
    return MemoryPlan(
        model_dir=str(folder),
        model=shape,
        device="cuda" if real else "simulated",
        simulated=None if real else SimulatedGpu(vram_bytes=4 << 30, pin_bytes=4 << 30),
        ledger=ledger(shape, split, Costs()),
        budgets=dict.fromkeys(Pool),
        **split.model_dump(exclude={"on_gpu"}),
    )


def _one_split(
    report: Report, plan: "MemoryPlan", letters: str, prompt: list[int], real: bool
) -> tuple[dict[str, Any], list[int]]:
    import torch

    from engine.model.build import drivers_for, load_model

    free_before = torch.cuda.mem_get_info(0)[0] if real else 0
    drivers = drivers_for(plan)
    began = time.monotonic()
    model = load_model(plan, report=lambda _: None, cancelled=lambda: False, drivers=drivers)
    loaded_s = time.monotonic() - began
    found = model.residency()
    report.check(f"{letters}: residency is what was planned", found.ledger_settled == plan.ledger and not found.fallen)
    if plan.ring_staged:
        report.check(f"{letters}: the ring could be pinned", found.ring_cause is None, words=found.ring_cause)
    row: dict[str, Any] = {"split": letters, "load_s": round(loaded_s, 2), "self_test": found.self_test}
    row["step_rates"] = [str(rates) for rates in model._parts.rates.values()]
    row["predicted"] = _predicted(plan, report.rates)
    answer = _timed_answer(model, prompt, row)
    again = _timed_answer(model, prompt, {})
    report.check(f"{letters}: the same tokens again", answer == again)
    uses = model.slot_use()
    hits, misses = sum(use.hits for use in uses), sum(use.misses for use in uses)
    row["slot_hits"] = round(hits / (hits + misses), 3) if hits + misses else None
    model.close()
    del model
    report.check(f"{letters}: the books are empty after closing", drivers.device.allocated == {})
    if real:
        gc.collect()
        torch.cuda.empty_cache()
        lost = free_before - torch.cuda.mem_get_info(0)[0]
        report.check(f"{letters}: GPU memory is back", lost <= NEAR_BYTES, lost_mib=round(lost / MIB, 1))
    print(f"     {letters:4} load {row['load_s']} s, prompt {row['prefill_tok_s']} tok/s, decode {row['decode_tok_s']} "
          f"tok/s, slot hits {row['slot_hits']}; predicted {row['predicted']}", flush=True)  # fmt: skip
    return row, answer


def _predicted(plan: "MemoryPlan", rates: "MeasuredRates | None") -> dict[str, list[float]]:
    """What the launcher would expect of a split, slowest and fastest, in tokens a second: to lay beside what is seen.

    A simulated GPU has no rates that the launcher would go by: tests/bench/speed.py says what its figures mean.
    """
    from app.planning.figures import Figures

    if rates is None:
        return {}
    figures = Figures(plan, rates)
    return {
        "prefill_tok_s": [
            round(PROMPT_TOKENS / figures.prompt_s(PROMPT_TOKENS, slowest=end), 1) for end in (True, False)
        ],
        "decode_tok_s": [round(1 / figures.token_s(slowest=end), 1) for end in (True, False)],
    }


def _timed_answer(model: "LoadedModel", prompt: list[int], row: dict[str, Any]) -> list[int]:
    """Greedy; rates without the first prompt, which allocates and compiles, and which is computed only to warm up."""
    if row:
        model.prefill(prompt, on_progress=lambda _: None, cancelled=lambda: False)
    model.reset()
    began = time.perf_counter()
    logits = model.prefill(prompt, on_progress=lambda _: None, cancelled=lambda: False)
    prefilled = time.perf_counter()
    tokens = [int(logits.argmax())]
    while len(tokens) < ANSWER_TOKENS:
        tokens.append(int(model.decode(tokens[-1]).argmax()))
    row["prefill_tok_s"] = round(len(prompt) / (prefilled - began), 1)
    row["decode_tok_s"] = round((ANSWER_TOKENS - 1) / (time.perf_counter() - prefilled), 1)
    return tokens


def _compare(report: Report, answers: dict[str, list[int]], real: bool) -> None:
    """On one kind of processor every split answers the same; CPU and GPU may differ in the last bit of a number."""
    want = answers.get("v", [])
    for letters, tokens in answers.items():
        same = next((at for at, (a, b) in enumerate(zip(tokens, want, strict=False)) if a != b), len(want))
        gpu_only = "l" not in letters
        report.check(
            f"{letters}: tokens are those of all layers in VRAM",
            tokens == want or (real and not gpu_only),
            same_first=same,
            of=len(want),
        )


def _finish(report: Report, out: Path) -> int:
    failed = [one["what"] for one in report.checks if not one["holds"]]
    out.mkdir(parents=True, exist_ok=True)
    file = out / "gpu_check.json"
    result = {**report.facts, "elapsed_s": round(report.elapsed_s, 1), "failed": failed, "splits": report.splits}
    file.write_text(json.dumps({**result, "checks": report.checks}, indent=1), "utf-8")
    kind = "simulated GPU" if report.facts["simulated"] else report.facts["device"]
    print(f"{len(report.checks) - len(failed)} of {len(report.checks)} checks hold on {kind}; {file}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
