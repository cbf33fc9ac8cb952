"""What it costs to keep keys and values in fp8: the same weights, the same tokens, two KV caches.

    python -m tests.bench.kv_quality [--model DIR] [--answer-tokens 48] [--text-tokens 400]

Greedy answers to three questions by both caches, and how many of their tokens are the same from the start. Then both
read the same text token by token; of every position the probabilities of the next token are compared: the mean
Kullback-Leibler divergence of fp8 from the other, in nats, the largest one, and how often both name the same token
first. Prints one JSON line.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from app.paths import demo_model_dir
from engine.contract.checkpoint import read_shape
from engine.contract.estimate import Costs, Split, kv_cache_bytes, ledger
from engine.contract.kv_types import kept_in
from engine.contract.plan import MemoryPlan, Pool, Tier
from engine.contract.shape import KvType, ModelShape
from engine.model.build import load_model
from engine.model.interface import LanguageModel

QUESTIONS = (
    "What is the capital of France?",
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a dog that learns to swim.",
)
TEXT = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"
CONTEXT_TOKENS, CHUNK = 2048, 512


@contextmanager
def loaded(folder: Path, shape: ModelShape, kv_dtype: KvType | None) -> Iterator[LanguageModel]:
    """The model on the CPU, its cache in that type."""
    counted = kept_in(shape, kv_dtype)
    tiers = (Tier.LOCKED,) * len(shape.moe_layers)
    split = Split(context_tokens=CONTEXT_TOKENS, prefill_chunk=CHUNK, expert_slots=0, tiers=tiers, on_gpu=False)
    plan = MemoryPlan(
        model_dir=str(folder),
        model=counted,
        device="cpu",
        context_tokens=CONTEXT_TOKENS,
        prefill_chunk=CHUNK,
        expert_slots=0,
        tiers=tiers,
        ledger=ledger(counted, split, Costs()),
        budgets=dict.fromkeys(Pool),
    )
    model = load_model(plan, report=lambda _: None, cancelled=lambda: False)
    try:
        yield model
    finally:
        model.close()


def answers(model: LanguageModel, most_tokens: int) -> list[list[int]]:
    """Greedy answers to the questions."""
    found = []
    for question in QUESTIONS:
        prompt = model.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]
        model.reset()
        logits, out = model.prefill(prompt, on_progress=lambda _: None, cancelled=lambda: False), list[int]()
        while len(out) < most_tokens and not (out and out[-1] in model.stop_token_ids):
            out.append(int(logits.argmax()))
            logits = model.decode(out[-1])
        found.append(out)
    return found


def log_probabilities(model: LanguageModel, tokens: Sequence[int]) -> Tensor:
    """Of the next token after every token of a text, [T, V]."""
    model.reset()
    rows = [model.prefill(tokens[:1], on_progress=lambda _: None, cancelled=lambda: False)]
    rows += [model.decode(token) for token in tokens[1:]]
    return torch.stack(rows).log_softmax(dim=-1)


def compare(folder: Path, answer_tokens: int, text_tokens: int) -> dict[str, Any]:
    """Everything that is printed."""
    shape = read_shape(folder)
    kinds: tuple[KvType | None, ...] = (None, "fp8")
    said, read = [], []
    for kind in kinds:
        with loaded(folder, shape, kind) as model:
            said.append(answers(model, answer_tokens))
            tokens = model.tokenizer(TEXT.read_text("utf-8"), add_special_tokens=False)["input_ids"][:text_tokens]
            read.append(log_probabilities(model, tokens))
    own, fp8 = read
    divergence = (own.exp() * (own - fp8)).sum(dim=-1)
    agree = own.argmax(dim=-1) == fp8.argmax(dim=-1)
    return {
        "model": shape.name,
        "kv_bytes": [kv_cache_bytes(kept_in(shape, kind), CONTEXT_TOKENS) for kind in kinds],
        "answers": [len(ours) for ours in said[0]],
        "same_tokens": [_same(*pair) for pair in zip(*said, strict=True)],
        "text_tokens": len(tokens),
        "mean_kl_nats": round(float(divergence.mean()), 6),
        "largest_kl_nats": round(float(divergence.max()), 6),
        "top_1_agreement": round(float(agree.float().mean()), 4),
    }


def _same(left: Sequence[int], right: Sequence[int]) -> int:
    """First tokens that are the same."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(left), len(right)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=demo_model_dir())
    parser.add_argument("--answer-tokens", type=int, default=48)
    parser.add_argument("--text-tokens", type=int, default=400)
    options = parser.parse_args()
    print(json.dumps(compare(options.model, options.answer_tokens, options.text_tokens)))


if __name__ == "__main__":
    main()
