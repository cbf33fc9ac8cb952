"""Writes demo_answers.json: greedy answers of the dense original, read by transformers' own GGUF loader.

    pip install accelerate  # that loader needs it; Splitpin does not
    python -m tests.golden.make_demo_answers SmolLM2-135M-Instruct.Q4_1.gguf

Nothing of our recipe takes part, so the file says what the demo model has to answer. The prompts are those whose best
token leads clearly at every step: a small difference in rounding must not change the answer.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from assets.demo_model.source import GGUF_SHA256, file_sha256
from tests.support.stock import greedy_answers

ANSWERS_FILE = Path(__file__).with_name("demo_answers.json")
MAX_NEW_TOKENS = 40
PROMPTS = (
    "What is the capital of France?",
    "What is the capital of Japan?",
    "List the months of the year.",
    "Count from one to ten.",
)


def main() -> None:
    """Ask every prompt and write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf", type=Path)
    gguf: Path = parser.parse_args().gguf
    if file_sha256(gguf) != GGUF_SHA256:
        raise SystemExit(f"{gguf} is not the source of the demo model.")
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    answers = [asdict(answer) for answer in greedy_answers(tokenizer, model, PROMPTS, MAX_NEW_TOKENS)]
    document = {
        "made_with": "dense original, transformers' GGUF loader, bfloat16, greedy",
        "max_new_tokens": MAX_NEW_TOKENS,
        "answers": answers,
    }
    ANSWERS_FILE.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
