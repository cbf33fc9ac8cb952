"""What a model folder says about text: its tokenizer, the sampling it was tuned for, the tokens that end an answer."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract.errors import ModelFolderError
from engine.model.hub import transformers

GENERATION_FILE = "generation_config.json"
_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


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
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as cause:
        raise ModelFolderError(
            f"{folder.name} has no usable tokenizer: {str(cause).splitlines()[0]}", "Download the model again."
        ) from cause
    settings = _generation_settings(folder / GENERATION_FILE)
    return TextSettings(
        tokenizer=tokenizer,
        generation_defaults=_generation_defaults(settings),
        stop_token_ids=_ids(
            settings.get("eos_token_id"),
            tokenizer.eos_token_id,
            getattr(config.get_text_config(), "eos_token_id", None),
        ),
    )


def _generation_settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text("utf-8"))
    except ValueError as cause:
        raise ModelFolderError(f"{file.name} is not JSON: {cause}.", "Download the model again.") from cause
    return settings if isinstance(settings, dict) else {}


def _generation_defaults(settings: dict[str, Any]) -> dict[str, float]:
    """The model's own sampling. `do_sample: false` means greedy, whatever temperature stands beside it."""
    found = {name: float(settings[name]) for name in _DEFAULTS if _is_number(settings.get(name))}
    if settings.get("do_sample") is False:
        found["temperature"] = 0.0
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ids(*values: object) -> frozenset[int]:
    found: set[int] = set()
    for value in values:
        items = value if isinstance(value, list | tuple) else [value]
        found.update(item for item in items if isinstance(item, int) and not isinstance(item, bool))
    return frozenset(found)
