"""Tokenizer files of the demo model, rebuilt from what the GGUF carries: byte-level BPE that splits digits."""

import json
from collections.abc import Iterator

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from assets.demo_model.source import SourceFacts

_CONTROL_TOKEN = 3  # token type in GGUF: never produced by ordinary text


def build_tokenizer(facts: SourceFacts) -> Tokenizer:
    """The tokenizer as an object of the tokenizers library."""
    merges = [(first, second) for first, second in (merge.split(" ") for merge in facts.merges)]
    tokenizer = Tokenizer(BPE(vocab={token: index for index, token in enumerate(facts.tokens)}, merges=merges))
    tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = ByteLevelDecoder()
    control = [
        AddedToken(token, special=True, normalized=False)
        for token, kind in zip(facts.tokens, facts.token_types, strict=True)
        if kind == _CONTROL_TOKEN
    ]
    tokenizer.add_special_tokens(control)
    return tokenizer


def tokenizer_files(facts: SourceFacts) -> Iterator[tuple[str, str]]:
    """Name and text of every tokenizer and generation file of the model folder."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": facts.tokens[facts.bos_token_id],
        "eos_token": facts.tokens[facts.eos_token_id],
        "pad_token": facts.tokens[facts.pad_token_id],
        "unk_token": facts.tokens[facts.unknown_token_id],
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts.max_context_tokens,
    }
    generation = {
        "bos_token_id": facts.bos_token_id,
        "do_sample": False,  # the small model is at its best, and repeatable, without sampling
        "eos_token_id": facts.eos_token_id,
        "pad_token_id": facts.pad_token_id,
    }
    yield "tokenizer.json", build_tokenizer(facts).to_str(pretty=False) + "\n"
    yield "tokenizer_config.json", _pretty(config)
    yield "chat_template.jinja", facts.chat_template
    yield "generation_config.json", _pretty(generation)


def _pretty(values: object) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
