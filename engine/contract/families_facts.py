"""A config.json as the family rules read it: what decides bytes must be there, what is assumed is written down."""

from collections.abc import Mapping
from typing import Any

from engine.contract.errors import CannotEstimateError

Flag = tuple[str, bool]  # key of config.json and what the modelling code takes where the key is missing

CONFIG_FIX = "Choose a folder whose config.json is complete."  # the fix of a missing fact
_MOST = 1 << 32  # of any size; a thousand times what models have, and small enough to compute with
_MOST_LAYERS = 1024

_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers"),
    "hidden_size": ("n_embd", "d_model"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": ("n_head_kv", "num_attention_groups"),
    "max_position_embeddings": ("n_positions", "n_ctx", "model_max_length", "max_seq_len"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_topk", "moe_k", "top_k_experts", "num_experts_per_token", "moe_top_k"),
    "layer_types": ("layers_block_type",),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts"),
    "share_expert_dim": ("share_expert_dims",),
}


class ConfigFacts:
    """Typed reads of one configuration; `assumptions` collects, in words, what the file did not say.

    A fact that decides the KV cache or the banks is required. The rest falls back on the default of the modelling
    code, which the engine would use too, and is noted.
    """

    def __init__(self, values: Mapping[str, Any], model_type: str) -> None:
        self._values = values
        self.model_type = model_type
        self.assumptions: list[str] = []

    def replaced(self, **values: Any) -> "ConfigFacts":
        """The same with other values under these keys; assumptions are shared."""
        own = ConfigFacts({**self._values, **values}, self.model_type)
        own.assumptions = self.assumptions
        return own

    def table(self, key: str) -> "ConfigFacts":
        """What stands in the table under a key; nothing where there is none."""
        value = self._values.get(key)
        own = ConfigFacts(value if isinstance(value, dict) else {}, self.model_type)
        own.assumptions = self.assumptions
        return own

    def shortened(self, keys: tuple[str, ...], layers: int, more: int) -> "ConfigFacts":
        """The same where lists under these keys that name `more` layers behind the last one end with it."""
        given = {key: self._values.get(key) for key in keys}
        lists = {key: value for key, value in given.items() if isinstance(value, list) and len(value) == layers + more}
        return self.replaced(**{key: value[:layers] for key, value in lists.items()})

    def given(self, key: str) -> Any:
        """The raw value under the key or one of its older names; None where missing or null."""
        for name in (key, *_OTHER_NAMES.get(key, ())):
            if self._values.get(name) is not None:
                return self._values[name]
        return None

    def has(self, key: str) -> bool:
        """Whether the file has the key at all, even as null."""
        return key in self._values

    def optional(self, key: str, *, least: int = 1) -> int | None:
        """A whole number, or None where it is missing.

        Raises:
            CannotEstimateError: the value is not a whole number of at least `least`, or one that no model can have.
        """
        value = self.given(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise CannotEstimateError(
                f"config.json says {key} = {value!r:.60}, which is not a whole number of at least {least}.",
                CONFIG_FIX,
                fact=key,
            )
        most = _MOST_LAYERS if key in ("num_hidden_layers", "num_layers") else _MOST
        if value > most:
            raise CannotEstimateError(
                f"config.json says {key} = {value!r:.60}; more than {most:,} are not believed.",
                CONFIG_FIX,
                fact=key,
            )
        return value

    def required(self, key: str) -> int:
        """A whole number above zero.

        Raises:
            CannotEstimateError: the fact is missing or not a number; the error names it.
        """
        value = self.optional(key)
        if value is None:
            raise CannotEstimateError(
                f"config.json of this {self.model_type} model does not say {key}; no memory figure without it.",
                CONFIG_FIX,
                fact=key,
            )
        return value

    def assumed(self, key: str, default: int, *, least: int = 0) -> int:
        """A whole number, or the modelling code's default, which is then noted as an assumption."""
        value = self.optional(key, least=least)
        if value is not None:
            return value
        note = f"{key} is not in config.json; {default:,} taken, the default of {self.model_type}"
        if note not in self.assumptions:
            self.assumptions.append(note)
        return default

    def quiet(self, key: str, default: int, *, least: int = 0) -> int:
        """A whole number, or a default that checkpoints usually leave out (a step of 1, no shared expert)."""
        value = self.optional(key, least=least)
        return default if value is None else value

    def flag(self, flag: Flag | bool) -> bool:
        """A yes or no; a plain bool is the answer itself."""
        if isinstance(flag, bool):
            return flag
        key, default = flag
        value = self.given(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise CannotEstimateError(
                f"config.json says {key} = {value!r:.60}, not true or false.", CONFIG_FIX, fact=key
            )
        return value

    def names(self, key: str, length: int) -> tuple[str, ...] | None:
        """A list of one word per layer, or None where it is missing.

        Raises:
            CannotEstimateError: not a list of words, or not one for every layer.
        """
        value = self.given(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) and len(name) < 80 for name in value):
            raise CannotEstimateError(f"{key} in config.json is not a list of words.", CONFIG_FIX, fact=key)
        if len(value) != length:
            raise CannotEstimateError(
                f"{key} in config.json names {len(value)} layers; the model has {length}.", CONFIG_FIX, fact=key
            )
        return tuple(value)

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers, or None where it is missing.

        Raises:
            CannotEstimateError: not a list of whole numbers.
        """
        value = self.given(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(number, int) for number in value):
            raise CannotEstimateError(f"{key} in config.json is not a list of whole numbers.", CONFIG_FIX, fact=key)
        return tuple(value)
