"""What a model folder says about text: its tokenizer, the sampling it was tuned for, the tokens that end an answer."""

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from engine.contract.checkpoint_json import MAX_CONFIG_BYTES, read_bounded
from engine.contract.errors import ModelFolderError, in_words
from engine.model.hub import transformers

GENERATION_FILE = "generation_config.json"
_DEFAULTS = (  # what makes sense, from least to most
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("top_k", -1.0, 1e9),
    ("min_p", 0.0, 1.0),
    ("repetition_penalty", 0.01, 100.0),
)
_TOKENIZER_FILES = ("tokenizer.*", "vocab.*", "*.model", "*.tiktoken", "tokenizer_config.json")
_DOWNLOAD = "Download the model again."


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Read before any weights, so that an incomplete folder is found early."""

    tokenizer: Any
    generation_defaults: dict[str, float]
    stop_token_ids: frozenset[int]


def read_text_settings(folder: Path, config: Any) -> TextSettings:
    """Read tokenizer and generation settings; `config` is transformers' configuration of the model.

    Raises:
        ModelFolderError: there is no usable tokenizer, or the generation settings are not JSON.
    """
    tokenizer = _tokenizer(folder, config)
    settings = _generation_settings(folder / GENERATION_FILE)
    return TextSettings(
        tokenizer=tokenizer,
        generation_defaults=generation_defaults(settings),
        stop_token_ids=token_ids(
            settings.get("eos_token_id"),
            tokenizer.eos_token_id,
            getattr(config.get_text_config(), "eos_token_id", None),
        ),
    )


def _tokenizer(folder: Path, config: Any) -> Any:
    if not any(any(folder.glob(pattern)) for pattern in _TOKENIZER_FILES):
        raise ModelFolderError(
            f"{folder.name} has no usable tokenizer: there is no tokenizer.json or the like.", _DOWNLOAD
        )
    read = functools.partial(
        transformers.AutoTokenizer.from_pretrained, folder, local_files_only=True, trust_remote_code=False
    )
    try:
        try:
            return read()
        except AttributeError:  # it stumbles over config.json, which was read in another way before
            return read(config=config)
    except Exception as cause:  # whatever a damaged file makes the libraries stumble over
        raise ModelFolderError(f"{folder.name} has no usable tokenizer: {in_words(cause)}.", _DOWNLOAD) from cause


def _generation_settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        settings = json.loads(read_bounded(file, MAX_CONFIG_BYTES, ModelFolderError).decode("utf-8"))
    except (ValueError, RecursionError) as cause:
        raise ModelFolderError(f"{file.name} is not JSON: {cause!s:.200}.", _DOWNLOAD) from cause
    return settings if isinstance(settings, dict) else {}


def generation_defaults(settings: dict[str, Any]) -> dict[str, float]:
    """The model's own sampling. `do_sample: false` means greedy, whatever temperature stands beside it.

    A value that makes no sense is left out, as if the model said nothing.
    """
    found: dict[str, float] = {}
    for name, least, most in _DEFAULTS:
        value = settings.get(name)
        if _is_number(value) and math.isfinite(value) and least <= value <= most:
            found[name] = float(value)
    if settings.get("do_sample") is False:
        found["temperature"] = 0.0
    return found


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def token_ids(*values: object) -> frozenset[int]:
    """All token ids in values that are one, a list of them, or anything else."""
    found: set[int] = set()
    for value in values:
        items = value if isinstance(value, list | tuple) else [value]
        found.update(item for item in items if isinstance(item, int) and not isinstance(item, bool))
    return frozenset(found)
