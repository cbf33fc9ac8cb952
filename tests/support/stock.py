"""Stock transformers as the judge: greedy answers of a model folder, with nothing of our engine in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class GreedyAnswer:
    """One question in a chat of its own, and the answer's tokens with the one that ended it."""

    prompt: str
    prompt_ids: list[int]
    answer_ids: list[int]
    answer: str


def greedy_answers(tokenizer: Any, model: Any, prompts: Sequence[str], max_new_tokens: int) -> Iterator[GreedyAnswer]:
    """Ask each prompt through the chat template, without sampling."""
    for prompt in prompts:
        encoded = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        prompt_ids: list[int] = encoded["input_ids"][0].tolist()
        with torch.inference_mode():
            output = model.generate(**encoded, max_new_tokens=max_new_tokens, do_sample=False)
        answer_ids: list[int] = output[0].tolist()[len(prompt_ids) :]
        yield GreedyAnswer(prompt, prompt_ids, answer_ids, tokenizer.decode(answer_ids, skip_special_tokens=True))
