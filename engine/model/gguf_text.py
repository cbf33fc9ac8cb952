"""Tokenizer, chat template, stop tokens and sampling out of the metadata of a GGUF file.

Vocabulary, merges and special tokens become a tokenizer by transformers' own rules (integrations/gguf). How text is cut
before the merges is named by `tokenizer.ggml.pre`; llama.cpp's table of these names (`llm_tokenizer_bpe`) is repeated
here for those that transformers does not have.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, pre_tokenizers

from engine.contract.errors import ModelFolderError, in_words
from engine.contract.gguf_headers import read_gguf_values
from engine.model.hub import transformers
from engine.model.text_settings import TextSettings, generation_defaults, token_ids

_TOKENIZER = {  # our name for transformers' converter: key after "tokenizer."
    "tokenizer_type": "ggml.model", "pre_tokenizer_type": "ggml.pre", "tokens": "ggml.tokens",
    "scores": "ggml.scores", "token_type": "ggml.token_type", "merges": "ggml.merges",
    "precompiled_charsmap": "ggml.precompiled_charsmap", "bos_token_id": "ggml.bos_token_id",
    "eos_token_id": "ggml.eos_token_id", "unk_token_id": "ggml.unknown_token_id",
    "pad_token_id": "ggml.padding_token_id", "add_prefix_space": "ggml.add_space_prefix",
}  # fmt: skip
_ADD = {"add_bos_token": "ggml.add_bos_token", "add_eos_token": "ggml.add_eos_token"}
_TEMPLATE = "tokenizer.chat_template"
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
# words that end an answer, for files that name only the end of the text
_END_WORDS = frozenset({"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|return|>", "<|call|>", "<end_of_turn>",
                        "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "[e~["})  # fmt: skip
_CONTROL = 3  # token type: never a part of ordinary text
_SAMPLING = {"temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
             "repetition_penalty": "penalty_repeat"}  # fmt: skip
_KEYS = frozenset(
    {f"tokenizer.{key}" for key in (*_TOKENIZER.values(), *_ADD.values())}
    | {f"tokenizer.ggml.{key}" for key in _ENDS}
    | {f"general.sampling.{key}" for key in _SAMPLING.values()}
    | {"general.architecture", _TEMPLATE}
)

_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_DEEPSEEK_LLM = (
    r"[\r\n]",
    r"\s?[\p{Lu}\p{Ll}\p{Lt}]+",
    "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-\ud7ff]+",
    r"\p{N}+",
)
_CASED = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_SHORTENED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_KIMI = (
    rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{_CASED}*{_SMALL}+{_SHORTENED}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_CASED}+{_SMALL}*{_SHORTENED}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_LLAMA3_LIKE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_QWEN2_LIKE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_SPLITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "phi-2"), (_WORDS,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), (r"\p{N}", _WORDS)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), _DEEPSEEK3),
    **dict.fromkeys(("glm4", "chatglm-bpe"), _LLAMA3_LIKE),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "dots1"), _QWEN2_LIKE),
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-llm": _DEEPSEEK_LLM,
    "kimi-k2": _KIMI,
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]"),
}
CUT_NAMES = tuple(_SPLITS)  # of `tokenizer.ggml.pre`, beside those that transformers has
_FIX = "Choose this model as a folder with config.json and tokenizer files."


def read_gguf_text(file: Path) -> TextSettings:
    """Read what the (first) file of a model says about text.

    Raises:
        ModelFolderError: there is no usable tokenizer.
        ModelFileError: the header is damaged.
    """
    found = read_gguf_values(file, _KEYS)
    known = {name: found[f"tokenizer.{key}"] for name, key in _TOKENIZER.items() if f"tokenizer.{key}" in found}
    tokens = known.get("tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ModelFolderError(f"{file.name} has no usable tokenizer: it holds no vocabulary.", _FIX)
    tokenizer = _tokenizer(file, str(found.get("general.architecture")), known, found)
    ends = [found.get(f"tokenizer.ggml.{key}") for key in _ENDS]
    kinds = known.get("token_type") or ()
    words = [number for number, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
             if kind == _CONTROL and token in _END_WORDS]  # fmt: skip
    sampling = {name: found.get(f"general.sampling.{key}") for name, key in _SAMPLING.items()}
    return TextSettings(
        tokenizer=tokenizer,
        generation_defaults=generation_defaults(sampling),
        stop_token_ids=token_ids(*ends, words, tokenizer.eos_token_id),
    )


def _tokenizer(file: Path, arch: str, known: dict[str, Any], found: Mapping[str, Any]) -> Any:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import (
        GGUF_PRE_TOKENIZER_SPLITS,
        convert_gguf_tokenizer,
    )

    cut = known.get("pre_tokenizer_type")
    byte_level = known.get("tokenizer_type") == "gpt2"
    if byte_level and cut is not None and cut not in {*GGUF_PRE_TOKENIZER_SPLITS, *_SPLITS}:
        raise ModelFolderError(
            f"{file.name} has no usable tokenizer: how it cuts text ({cut!s:.40}) is not known.", _FIX
        )
    try:
        backend, _ = convert_gguf_tokenizer(arch, known)
        if byte_level and cut in _SPLITS and cut not in GGUF_PRE_TOKENIZER_SPLITS:
            steps: list[Any] = [pre_tokenizers.Split(Regex(split), behavior="isolated") for split in _SPLITS[cut]]
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
            backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokens = known["tokens"]
        special = {
            name: tokens[number]
            for name in ("bos_token", "eos_token", "unk_token", "pad_token")
            if isinstance(number := known.get(f"{name}_id"), int) and 0 <= number < len(tokens)
        }
        adds = {name: found[f"tokenizer.{key}"] for name, key in _ADD.items() if f"tokenizer.{key}" in found}
        if known.get("tokenizer_type") == "llama":
            adds.setdefault("add_bos_token", True)  # as llama.cpp does for older files
        return transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=backend, chat_template=found.get(_TEMPLATE), **special, **adds
        )
    except Exception as cause:  # whatever a damaged vocabulary makes the libraries stumble over
        raise ModelFolderError(f"{file.name} has no usable tokenizer: {in_words(cause)}.", _FIX) from cause
