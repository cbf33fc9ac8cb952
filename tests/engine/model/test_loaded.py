"""What generation sees of a loaded model."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from engine.contract.errors import ContextTooLongError, ModelFolderError
from engine.model.interface import GenerationCancelledError
from engine.model.loaded import UnknownTokenError, keep_head_flat
from engine.model.text_settings import generation_defaults
from tests.engine.model.conftest import Load, Tiny
from tests.support.reference import prefill, random_prompt
from tests.support.tiny_models import VOCAB, TinyModel, plan_for
from tests.support.turns import ask, assert_as_cold


def test_logits_are_one_row_of_float32_on_the_cpu(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "vplg"))
    logits = prefill(model, random_prompt(5))
    assert (logits.shape, str(logits.dtype), logits.device.type) == ((VOCAB,), "torch.float32", "cpu")
    assert model.vocab_size == VOCAB


def test_progress_counts_the_tokens_of_finished_chunks(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "llll", prefill_chunk=16))
    seen: list[int] = []
    model.prefill(random_prompt(40), on_progress=seen.append, cancelled=lambda: False)
    assert seen == [16, 32, 40]
    assert model.cached_tokens == 40


def test_a_prompt_that_does_not_fit_is_refused_before_anything_is_computed(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "llll", context_tokens=32))
    prefill(model, random_prompt(10))
    with pytest.raises(ContextTooLongError) as why:
        prefill(model, random_prompt(23))
    assert why.value.numbers == {"prompt_tokens": 33, "context_tokens": 32}
    assert model.cached_tokens == 10


def test_a_token_that_the_model_has_no_weights_for_is_refused_before_a_gpu_meets_it(tiny: Tiny, load: Load) -> None:
    """A tokenizer of another model: an index beyond the embedding is an error that no process with CUDA survives."""
    model = load(plan_for(tiny("mixtral"), "vplg"))
    before = ask(model, random_prompt(9), 3)
    with pytest.raises(UnknownTokenError, match=f"token 4,000 of the tokenizer; the model knows only {VOCAB}"):
        ask(model, [*random_prompt(9), 4000])
    assert model.check_integrity() == ()
    assert_as_cold(model, random_prompt(9), before)


def test_a_prompt_nobody_waits_for_stops_between_two_chunks(tiny: Tiny, load: Load) -> None:
    model = load(plan_for(tiny("mixtral"), "llll", prefill_chunk=8))
    seen: list[int] = []
    with pytest.raises(GenerationCancelledError):
        model.prefill(random_prompt(40), on_progress=seen.append, cancelled=lambda: len(seen) == 2)
    assert (seen, model.cached_tokens) == ([8, 16], 16)


def test_an_empty_prompt_is_an_error_of_the_caller(tiny: Tiny, load: Load) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        prefill(load(plan_for(tiny("mixtral"), "llll")), [])


def test_sampling_defaults_and_stop_tokens_come_from_the_folder(tiny: Tiny, load: Load, tmp_path: Path) -> None:
    checkpoint = tiny("mixtral")
    folder = shutil.copytree(checkpoint.folder, tmp_path / "mixtral")
    settings = {"temperature": 0.6, "top_k": 20, "do_sample": True, "eos_token_id": [2, 5], "top_p": None}
    (folder / "generation_config.json").write_text(json.dumps(settings), "utf-8")
    model = load(plan_for(TinyModel(folder, checkpoint.shape), "llll"))
    assert model.generation_defaults == {"temperature": 0.6, "top_k": 20.0}
    assert model.stop_token_ids == frozenset({2, 5})
    assert model.tokenizer("hello world")["input_ids"] == [4, 5]


def test_a_model_that_is_not_to_be_sampled_answers_greedily(tiny: Tiny, load: Load, tmp_path: Path) -> None:
    checkpoint = tiny("mixtral")
    folder = shutil.copytree(checkpoint.folder, tmp_path / "mixtral")
    settings = {"do_sample": False, "temperature": 0.9}
    (folder / "generation_config.json").write_text(json.dumps(settings), "utf-8")
    model = load(plan_for(TinyModel(folder, checkpoint.shape), "llll"))
    assert model.generation_defaults == {"temperature": 0.0}


def test_damaged_generation_settings_are_named(tiny: Tiny, load: Load, tmp_path: Path) -> None:
    checkpoint = tiny("mixtral")
    folder = shutil.copytree(checkpoint.folder, tmp_path / "mixtral")
    (folder / "generation_config.json").write_text("{", "utf-8")
    with pytest.raises(ModelFolderError, match=r"generation_config\.json is not JSON"):
        load(plan_for(TinyModel(folder, checkpoint.shape), "llll"))


class _Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.strides: list[tuple[int, ...]] = []

    @override
    def forward(self, hidden: Tensor) -> Tensor:
        self.strides.append(hidden.stride())
        return hidden


class _Headed(nn.Module):
    def __init__(self, head: nn.Module | None) -> None:
        super().__init__()
        self.head = head

    def get_output_embeddings(self) -> nn.Module | None:
        return self.head


def test_the_head_gets_the_last_position_as_a_matrix_of_its_own() -> None:
    head, prompt = _Head(), torch.arange(24.0).view(1, 6, 4)
    keep_head_flat(_Headed(head))
    out = head(prompt[:, -1:])
    assert head.strides == [(4, 4, 1)], "not (24, 4, 1), for which torch copies the head"
    assert torch.equal(out, prompt[:, -1:])


def test_a_model_without_a_head_is_left_alone() -> None:
    keep_head_flat(_Headed(None))


def test_sampling_that_makes_no_sense_is_as_if_it_was_not_there() -> None:
    strange = {"temperature": float("inf"), "top_p": -3, "top_k": 1e300, "min_p": "x", "repetition_penalty": 0}
    assert generation_defaults(strange) == {}
    assert generation_defaults({"temperature": -1, "top_p": 0.5}) == {"top_p": 0.5}
