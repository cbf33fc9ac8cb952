"""What transformers calls the weights of a checkpoint, by its own rules for renaming and merging."""

import re
from typing import Any

_EXPERT = re.compile(r"\.experts\.\d+\.")


class StockNames:
    """The rules of one model. Asking transformers takes 25 µs a name, so it is asked about one expert of a layer."""

    def __init__(self, model: Any) -> None:
        """`model` as built by `without_experts`."""
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming

        rules = get_model_conversion_mapping(model)
        self._renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
        self._converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
        self.converters: dict[str, Any] = {
            pattern: rule for rule in self._converters for pattern in rule.source_patterns
        }
        self._prefix = model.base_model_prefix
        self._full = dict.fromkeys(model.full_keys, True)
        self._of_experts: dict[str, tuple[str, str | None]] = {}

    def target(self, key: str) -> tuple[str, str | None]:
        """The weight that a tensor goes into, and the pattern of the converter that takes it there, if one does."""
        head, found, rest = key.rpartition(".experts.")
        number, dot, tail = rest.partition(".")
        if not found or not dot or not number.isdecimal():
            return self._ask(key)
        alike = f"{head}.experts.*.{tail}"
        if (known := self._of_experts.get(alike)) is not None:
            return known
        answer = self._ask(key)
        if not _EXPERT.search(answer[0]):  # all experts go into the same weight
            self._of_experts[alike] = answer
        return answer

    def _ask(self, key: str) -> tuple[str, str | None]:
        from transformers.core_model_loading import rename_source_key

        target, pattern = rename_source_key(key, self._renamings, self._converters, self._prefix, self._full)
        if target not in self._full and key in self._full:
            target, pattern = rename_source_key(key, [], [], self._prefix, self._full)
        return target, pattern
