"""A text model that transformers has only inside a larger model: it runs there, without the parts for pictures."""

from typing import Any

from torch import nn

from engine.model.hub import transformers

_MARK = "splitpin_text_only"
_WHOLE = {"step3p5": ("step3p7", ("vision_model", "multi_modal_projector"))}  # text part, whole, what is left out


def inside_whole(config: Any) -> Any:
    """The configuration of the larger model around a text model of such a type; any other one as it is."""
    if config.model_type not in _WHOLE:
        return config
    whole_type, _ = _WHOLE[config.model_type]
    kind: Any = transformers.CONFIG_MAPPING[whole_type]
    whole = kind(
        text_config=config, vision_config={"num_hidden_layers": 1}, tie_word_embeddings=config.tie_word_embeddings
    )
    setattr(whole, _MARK, True)
    return whole


def leave_out_parts(model: nn.Module, config: Any) -> None:
    """Take out of a built model what its checkpoint does not have."""
    if getattr(config, _MARK, False):
        _, parts = _WHOLE[config.get_text_config().model_type]
        for part in parts:
            setattr(model.model, part, None)
