"""Which model type a configuration is of, and what its modelling code makes of it. No torch, no transformers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.contract.errors import CannotEstimateError, SplitpinError, UnsupportedModelError
from engine.contract.families_anatomy import Anatomy
from engine.contract.families_excluded import NOT_RUNNABLE
from engine.contract.families_facts import CONFIG_FIX, ConfigFacts
from engine.contract.families_table import FAMILIES, TIED_BY_DEFAULT

_NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
_AHEAD = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TEXT_ALONE = frozenset(  # their text part is run without the wrapper
    {"dots3_note", "inkling_mm_model", "llama4", "qwen3_5_moe", "qwen4_exp"}
)
_PICTURES = re.compile(
    r"(^|\.)(visual|vision_model|vision_tower|vision_encoder|audio|audio_tower|audio_encoder|audio_adapter"
    r"|multi_modal_projector)\."
)
_TIED_WRAPPERS = frozenset({"kimi_k25"})
_RENAMED = {  # wrapper and type as published; transformers builds the latter for them
    ("kimi_k25", "kimi_k2"): "deepseek_v3",
    ("", "dots3_note"): "dots3_note_text",  # its text part stands beside those for pictures and sound
    ("step3p7", "step3p7"): "step3p5",
    ("step3p7", "step3p7_text"): "step3p5",
}
_UNTIED_WRAPPERS = frozenset({"qwen3_vl_moe"})  # their text part alone would be tied


@dataclass(frozen=True, slots=True)
class TextConfig:
    """The part of a config.json that describes the language model, and what stands around it."""

    model_type: str
    values: Mapping[str, Any]
    outer: tuple[Mapping[str, Any], ...]  # outermost first; empty where nothing is nested

    @property
    def runs_alone(self) -> bool:
        """Whether transformers loads this part without the parts for pictures that stand around it."""
        return (self.outer[-1] if self.outer else self.values).get("model_type") in _TEXT_ALONE

    def leaves_out(self, tensor_name: str) -> bool:
        """Whether a tensor belongs to a part for pictures or sound that is not loaded."""
        return self.runs_alone and _PICTURES.search(tensor_name) is not None

    def anywhere(self, key: str) -> Any:
        """The value in the text part, or in the nearest part around it; None where missing or null."""
        for part in (self.values, *reversed(self.outer)):
            if part.get(key) is not None:
                return part[key]
        return None


def text_config(config: Mapping[str, Any]) -> TextConfig:
    """Unwrap `text_config` and the like.

    Raises:
        CannotEstimateError: the text part is only a reference to another model.
    """
    outer: list[Mapping[str, Any]] = []
    values = config
    while nested := next((values[key] for key in _NESTED if isinstance(values.get(key), dict)), None):
        outer.append(values)
        if set(nested) <= {"_name_or_path", "model_type", "architectures"}:
            other = nested.get("_name_or_path") or "another model"
            raise CannotEstimateError(
                f"config.json only refers to {other!s:.120} for its language model; the config.json of that model is"
                " missing.",
                "Add the missing file, or choose the folder of that model.",
                missing_file="config.json",
            )
        values = nested
    for part in (values, *outer):
        if not isinstance(part.get("model_type"), str | None):
            raise CannotEstimateError(
                f"config.json says model_type = {part['model_type']!r:.60}, which is no name.",
                CONFIG_FIX,
                fact="model_type",
            )
    own = values.get("model_type")
    wrapper = outer[-1].get("model_type") if outer else None
    model_type = f"{own or (f'{wrapper}_text' if wrapper else '')!s:.80}"
    model_type = _RENAMED.get((str(wrapper) if outer else "", model_type), model_type)
    return TextConfig(model_type=model_type, values=values, outer=tuple(outer))


def anatomy_of(config: Mapping[str, Any]) -> tuple[TextConfig, ConfigFacts, Anatomy]:
    """What the modelling code builds from a config.json.

    Raises:
        UnsupportedModelError: not a Mixture-of-Experts model, or a type the engine cannot run.
        CannotEstimateError: a fact is missing, or the model keeps something else than keys and values.
    """
    text = text_config(config)
    rule = FAMILIES.get(text.model_type)
    if rule is None:
        raise _why_not(text)
    facts = ConfigFacts(text.values, text.model_type)
    anatomy = rule(facts, _tied(text))
    if ahead := next((count for key in _AHEAD if (count := facts.quiet(key, 0))), 0):
        layers = "1 layer that guesses tokens ahead is" if ahead == 1 else f"{ahead} layers that guess tokens ahead are"
        facts.assumptions.append(f"{layers} not loaded and not counted")
    return text, facts, anatomy


def _tied(text: TextConfig) -> bool:
    """Whether the output head is the input embedding: the outermost configuration decides, as in transformers."""
    default = text.model_type in TIED_BY_DEFAULT
    if not text.outer or text.runs_alone:
        return ConfigFacts(text.values, text.model_type).flag(("tie_word_embeddings", default))
    wrapper = text.outer[-1]
    wrapper_type = str(wrapper.get("model_type"))
    default = wrapper_type in _TIED_WRAPPERS or (default and wrapper_type not in _UNTIED_WRAPPERS)
    tied = ConfigFacts(wrapper, wrapper_type).flag(("tie_word_embeddings", default))
    inner = text.values.get("tie_word_embeddings") is True
    return tied or (inner and wrapper_type == "glm4v_moe")


def _why_not(text: TextConfig) -> SplitpinError:
    """The error for a type that has no family rules."""
    plain = text.model_type.removesuffix("_text")
    names = text.anywhere("architectures")
    architecture = names[0][:80] if isinstance(names, list) and names and isinstance(names[0], str) else None
    if reason := NOT_RUNNABLE.get(plain):
        return UnsupportedModelError(
            f"Architecture {plain} is not supported: {reason}.",
            _list_fix(),
            model_type=plain,
            architecture=architecture,
        )
    if "num_hidden_layers" not in text.values and "n_layer" not in text.values:
        return CannotEstimateError(
            f"config.json of this {plain or 'model'} says neither layers nor attention; memory cannot be computed.",
            CONFIG_FIX,
            model_type=plain,
            fact="num_hidden_layers",
        )
    if not any(key in text.values for key in _EXPERT_KEYS):
        return UnsupportedModelError(
            f"This {plain or 'unnamed'} model is not a Mixture-of-Experts model: config.json names no routed experts.",
            "Choose a Mixture-of-Experts model.",
            model_type=plain,
            architecture=architecture,
        )
    named = f" (config.json names {architecture})" if architecture else ""
    return UnsupportedModelError(
        f"Architecture {plain or 'without a name'} is not supported{named}.",
        _list_fix(),
        model_type=plain,
        architecture=architecture,
    )


def supported_families() -> tuple[str, ...]:
    """Model types with family rules, for people, in alphabetical order."""
    return tuple(sorted(name.removesuffix("_text") for name in FAMILIES))


def _list_fix() -> str:
    return f"Choose a model of one of these types: {', '.join(supported_families())}."
