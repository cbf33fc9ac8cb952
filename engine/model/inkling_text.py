"""The language model of Inkling without its parts for pictures and sound, which need a package that is not here.

Published files name its tensors as parts of the whole; transformers has the rules for these names for the whole only.
"""

from typing import Any

from engine.model.hub import transformers  # noqa: F401  first: it settles how transformers is imported

WHOLE = "inkling_mm_model"
_TEXT = "inkling_text"
_ALIAS = "InklingTextOfWhole"


def runs_text_alone(config: Any) -> bool:
    """Whether of this configuration only the text part is run."""
    return bool(config.model_type == WHOLE)


def loading_name(config: Any) -> str | None:
    """A class name under which transformers knows the names of published files; None: the class's own does.

    Harmless when repeated.
    """
    if config.model_type != _TEXT:
        return None
    from transformers.conversion_mapping import (
        get_checkpoint_conversion_mapping,
        register_checkpoint_conversion_mapping,
    )
    from transformers.core_model_loading import WeightRenaming

    rules = [
        *get_checkpoint_conversion_mapping(WHOLE),  # type: ignore[no-untyped-call]
        WeightRenaming(source_patterns=r"model\.language_model\.", target_patterns="model."),
    ]
    register_checkpoint_conversion_mapping(_ALIAS, rules, overwrite=True)
    return _ALIAS
