"""Tokenizer, stop tokens and sampling of GGUF files of both kinds: byte-level merges, and pieces with scores."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from engine.contract.errors import ModelFileError, ModelFolderError
from engine.model.gguf_text import CUT_NAMES, read_gguf_text
from engine.model.text_settings import TextSettings

_BYTES = [f"<0x{value:02X}>" for value in range(256)]
_PIECES = ["▁", "h", "e", "l", "o", "▁h", "el", "lo", "▁hel", "▁hello", "[INST]"]
_ORDINARY, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6  # token types


def _written(file: Path, **changes: Any) -> Path:
    """A file with a vocabulary and nothing else; `changes` are calls of the writer by name, None leaves one out."""
    words = ["<|endoftext|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "he", "ll", "llo"]
    calls: dict[str, Any] = {
        "add_tokenizer_model": "gpt2",
        "add_tokenizer_pre": "qwen2",
        "add_token_list": words,
        "add_token_types": [_CONTROL, _CONTROL, *[_ORDINARY] * (len(words) - 2)],
        "add_token_merges": ["h e", "l l", "ll o"],
        "add_eos_token_id": 0,
    }
    writer = gguf.GGUFWriter(file, "qwen3moe")
    for name, value in {**calls, **changes}.items():
        if value is not None:
            getattr(writer, name)(value)
    writer.add_tensor("a", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _pieces(file: Path) -> TextSettings:
    words = ["<unk>", "<s>", "</s>", *_BYTES, *_PIECES]
    scores = [0.0] * 259 + [-1000.0] * 5 + [-float(place) for place in range(6)]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *[_ORDINARY] * 10, _CONTROL]
    return read_gguf_text(
        _written(
            file, add_tokenizer_model="llama", add_tokenizer_pre="default", add_token_list=words,
            add_token_scores=scores, add_token_types=kinds, add_token_merges=None, add_bos_token_id=1,
            add_eos_token_id=2, add_unk_token_id=0,
        )
    )  # fmt: skip


def test_pieces_with_scores_become_merges_and_what_has_no_piece_becomes_bytes(tmp_path: Path) -> None:
    text = _pieces(tmp_path / "m.gguf")
    tokenizer = text.tokenizer
    assert tokenizer.convert_ids_to_tokens(tokenizer("hello")["input_ids"]) == ["<s>", "▁hello"]
    ids = tokenizer("[INST] hél", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[INST]", "▁h", "<0xC3>", "<0xA9>", "l"]
    assert tokenizer.decode(ids) == "[INST] hél"
    assert text.stop_token_ids == {2}


@pytest.mark.parametrize("cut", [*CUT_NAMES, "qwen2", "llama-bpe", "gpt-4o", None])
def test_text_cut_in_any_known_way_comes_back_as_it_was(cut: str | None, tmp_path: Path) -> None:
    tokenizer = read_gguf_text(_written(tmp_path / "m.gguf", add_tokenizer_pre=cut)).tokenizer
    text = "hello, don't  count 12345\n\n日本語 x_1 = [2]; é\t!"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    words = tokenizer.convert_ids_to_tokens(tokenizer("hello")["input_ids"])
    assert words == ["he", "llo"]


def test_digits_are_cut_as_the_name_says(tmp_path: Path) -> None:
    merges = ["1 2", "12 3", "4 5"]
    words = ["<|endoftext|>", *sorted(ByteLevel.alphabet()), "12", "123", "45"]
    kinds = [_CONTROL, *[_ORDINARY] * (len(words) - 1)]
    found = {}
    for cut in ("smollm", "deepseek-v3", "gpt-2"):
        file = _written(
            tmp_path / f"{cut}.gguf", add_tokenizer_pre=cut, add_token_list=words, add_token_types=kinds,
            add_token_merges=merges,
        )  # fmt: skip
        tokenizer = read_gguf_text(file).tokenizer
        found[cut] = tokenizer.convert_ids_to_tokens(tokenizer("12345")["input_ids"])
    assert found["smollm"] == ["1", "2", "3", "4", "5"]
    assert found["deepseek-v3"] == found["gpt-2"] == ["123", "45"]


def test_words_signs_and_digits_are_cut_as_deepseek_does(tmp_path: Path) -> None:
    tokenizer = read_gguf_text(_written(tmp_path / "m.gguf", add_tokenizer_pre="deepseek-llm")).tokenizer
    cut = [word for word, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("Elan vital, 42日本!\n")]
    assert [tokenizer.backend_tokenizer.decoder.decode([word]) for word in cut] == [
        "Elan", " vital", ",", " ", "42", "日本", "!", "\n"
    ]  # fmt: skip


def test_words_that_end_a_turn_end_an_answer_and_sampling_is_read(tmp_path: Path) -> None:
    text = read_gguf_text(_written(tmp_path / "m.gguf", add_sampling_temp=0.7, add_sampling_top_k=20))
    assert text.stop_token_ids == {0, 1}
    assert text.generation_defaults == pytest.approx({"temperature": 0.7, "top_k": 20})


def test_a_way_of_cutting_that_is_not_known_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"how it cuts text \(klingon\) is not known"):
        read_gguf_text(_written(tmp_path / "m.gguf", add_tokenizer_pre="klingon"))


@pytest.mark.parametrize(
    "changes",
    [
        {"add_token_list": None, "add_token_types": None},
        {"add_tokenizer_model": "bert"},
        {"add_token_merges": ["h e", "q"]},
    ],
)
def test_a_vocabulary_that_is_of_no_use_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="no usable tokenizer"):
        read_gguf_text(_written(tmp_path / "m.gguf", **changes))


def test_a_damaged_vocabulary_is_a_damaged_file(tmp_path: Path) -> None:
    file = _written(tmp_path / "m.gguf")
    file.write_bytes(file.read_bytes()[:900])
    with pytest.raises(ModelFileError, match=r"m\.gguf"):
        read_gguf_text(file)
