"""The family rules against the modules that transformers builds: this table is the gate for an upgrade of transformers.

Every case writes a config.json as transformers writes it, reads it without torch, and compares experts, KV shapes,
windows and dense bytes with the real module on the meta device.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import CONFIG_MAPPING

from engine.contract.checkpoint import read_shape
from engine.contract.errors import UnsupportedModelError
from engine.contract.families_excluded import NOT_RUNNABLE
from engine.contract.families_table import FAMILIES
from engine.contract.formats import WeightFormat
from engine.contract.shape import ModelShape
from tests.support.built_families import build, dense_bytes, expert_modules, kept, kv_shapes, memory_only
from tests.support.family_cases import CASES
from tests.support.family_cases_nested import LOOK_AT_VALUES, NESTED, NESTED_TEXTS, TO_BE_COMPLETE
from tests.support.family_cases_other import OTHER_CASES


def _flat() -> list[Any]:
    return [
        pytest.param(CONFIG_MAPPING[kind], {"num_hidden_layers": 8, **extra}, {}, id=f"{kind}-{index}")
        for kind, variants in (CASES | OTHER_CASES).items()
        for index, extra in enumerate(variants)
    ]


def _nested() -> list[Any]:
    return [
        pytest.param(
            CONFIG_MAPPING[kind],
            {},
            {"text_config": {"num_hidden_layers": 8, **text}, **around},
            id=f"{kind}-{index}",
        )
        for kind, variants in NESTED.items()
        for index, (text, around) in enumerate(variants)
    ]


def _saved(config: Any, folder: Path) -> ModelShape:
    config.save_pretrained(folder)
    return read_shape(folder)


@pytest.mark.parametrize(("kind", "plain", "nested"), [*_flat(), *_nested()])
def test_the_rules_say_what_transformers_builds(
    kind: type[Any], plain: dict[str, Any], nested: dict[str, Any], tmp_path: Path
) -> None:
    config = kind(**plain, **nested)
    model = build(config)
    shape = _saved(config, tmp_path)
    modules = expert_modules(model)
    assert shape.moe_layers == tuple(sorted(modules))
    for module in modules.values():
        up = (module.gate_up_proj if module.has_gate else module.up_proj).shape
        down = module.down_proj.shape
        if getattr(module, "down_turned", False):
            down = down.__class__((down[0], down[2], down[1]))
        if module.is_transposed:
            up, down = up.__class__((up[0], up[2], up[1])), down.__class__((down[0], down[2], down[1]))
        experts = shape.experts
        assert tuple(up) == (experts.n_experts, (1 + experts.has_gate) * experts.inner, experts.width)
        assert tuple(down) == (experts.n_experts, experts.width, experts.inner)
        assert module.has_bias == experts.has_bias
        assert module.has_gate == experts.has_gate
    text = config.get_text_config(decoder=True)
    if text.model_type in CASES or text.model_type in NESTED_TEXTS:
        assert [layer.kv for layer in shape.layers] == kv_shapes(model, text)
    if config.model_type not in LOOK_AT_VALUES:
        assert [memory_only(layer) for layer in shape.cached_layers] == kept(model)
    passes = sum(layer.passes - 1 for layer in shape.layers)
    assert len(shape.cached_layers) == text.num_hidden_layers + passes
    assert shape.vocab_size == text.vocab_size
    assert shape.max_context_tokens == text.max_position_embeddings
    assert shape.dense_format is WeightFormat.BF16
    assert shape.dense_bytes == dense_bytes(model)
    assert not [note for note in shape.assumptions if "taken, the default" in note]


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_a_missing_vocabulary_context_or_top_k_is_the_class_default_and_is_named(kind: str, tmp_path: Path) -> None:
    default = CONFIG_MAPPING[kind]()
    complete = TO_BE_COMPLETE.get(kind, (CASES | OTHER_CASES).get(kind, [{}])[0])
    if "layer_types" in complete:
        complete = {"num_hidden_layers": 8, **complete}
    CONFIG_MAPPING[kind](**complete).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text("utf-8"))
    names = {"vocab_size", "max_position_embeddings", "model_max_length"}
    if getattr(default, "num_experts_per_tok", None) is not None:
        names |= {"num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"}
    dropped = names & set(values)
    file.write_text(json.dumps({key: value for key, value in values.items() if key not in dropped}), "utf-8")
    shape = read_shape(tmp_path)
    assert shape.vocab_size == default.vocab_size
    assert shape.max_context_tokens == default.max_position_embeddings
    top_k = getattr(default, "num_experts_per_tok", None)
    if top_k is not None:
        assert shape.experts.top_k == top_k
    assert len([note for note in shape.assumptions if "taken, the default" in note]) == len(dropped)


def test_every_type_with_routed_experts_has_rules_or_a_reason() -> None:
    models = Path(transformers.__file__).parent / "models"
    with_interface = {
        file.parent.name
        for file in models.glob("*/modeling_*.py")
        if "@use_experts_implementation" in file.read_text("utf-8")
    }
    known = {name.removesuffix("_text") for name in FAMILIES} | set(NOT_RUNNABLE)
    assert with_interface - known == set()


def test_every_family_is_compared_with_its_module() -> None:
    wrapped = {str(text.get("model_type", kind)) for kind, variants in NESTED.items() for text, _ in variants}
    compared = {name.removesuffix("_text").removesuffix("_thinker") for name in (*CASES, *OTHER_CASES, *wrapped)}
    assert {name.removesuffix("_text") for name in FAMILIES} == compared


@pytest.mark.parametrize("kind", sorted(NOT_RUNNABLE))
def test_types_that_are_not_run_are_refused_with_their_reason(kind: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}", "num_hidden_layers": 4}}', "utf-8")
    with pytest.raises(UnsupportedModelError, match=re.escape(NOT_RUNNABLE[kind])):
        read_shape(tmp_path)
