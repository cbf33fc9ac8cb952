"""A plan and the folder it was made for: what may differ, what may not, and how the difference is told."""

from collections.abc import Callable

import pytest

from engine.contract.changed_model import ModelChangedError, check_unchanged
from engine.contract.kv_types import kept_in
from engine.contract.shape import Difference, ModelShape
from tests.support.tiny_plan import tiny_shape


def _changed(**updates: object) -> ModelShape:
    return tiny_shape().model_copy(update=updates)


def test_a_folder_that_only_has_another_name_is_what_was_planned() -> None:
    words = {
        "name": "moved",
        "assumptions": ("bf16 taken",),
        "source": "headers",
        "differences": (Difference(what="routed experts", config_bytes=1, file_bytes=2),),
    }
    check_unchanged(tiny_shape(), _changed(**words))


def test_a_plan_with_fp8_keys_and_values_is_compared_as_such() -> None:
    check_unchanged(kept_in(tiny_shape(), "fp8"), tiny_shape())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda shape: {"experts": shape.experts.model_copy(update={"top_k": 3})}, "experts a token 2 in the plan, 3"),
        (lambda shape: {"max_context_tokens": 1024}, "longest context 2,048 in the plan, 1,024 now"),
        (lambda shape: {"container": "gguf"}, "weight files safetensors in the plan, gguf now"),
        (lambda shape: {"layers": shape.layers[:2]}, "layers 3 in the plan, 2 now; layers of experts 3 in the plan, 2"),
        (lambda shape: {"blocked": "its experts are odd"}, "nothing in the plan, its experts are odd now"),
        (
            lambda shape: {
                "layers": (
                    *shape.layers[:2],
                    shape.layers[2].model_copy(
                        update={"kv": shape.layers[2].kv.model_copy(update={"window": 64})},
                    ),
                )
            },
            "what layer 2 is or keeps of a sequence",
        ),
    ],
)
def test_what_differs_is_told_with_both_values(change: Callable[[ModelShape], dict[str, object]], told: str) -> None:
    with pytest.raises(ModelChangedError, match=told) as refused:
        check_unchanged(tiny_shape(), _changed(**change(tiny_shape())))
    assert refused.value.problem.kind == "model_changed"
    assert refused.value.fix == "Plan again."


def test_of_many_differences_three_are_told_and_all_are_kept_as_numbers() -> None:
    experts = tiny_shape().experts.model_copy(update={"n_experts": 8, "inner": 32})
    with pytest.raises(ModelChangedError) as refused:
        check_unchanged(tiny_shape(), _changed(experts=experts, family="qwen3_moe", vocab_size=7, dense_bytes=9))
    assert refused.value.sentence.count(" now") == 3
    assert refused.value.numbers["planned_dense_bytes"] == 200_000
    assert refused.value.numbers["found_dense_bytes"] == 9
