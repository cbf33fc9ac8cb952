"""DeepSeek V4's tiers: bytes of a published model worked out by hand, and facts that must be there."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import CannotEstimateError
from engine.contract.estimate import kv_cache_bytes, state_bytes
from engine.contract.families import anatomy_of
from engine.contract.shape import PooledShape
from tests.support.model_configs import shape_of

_ROWS = json.loads((Path(__file__).parents[2] / "reference" / "models.json").read_text("utf-8"))
FLASH: dict[str, Any] = next(row["config"] for row in _ROWS if row["name"] == "DeepSeek-V4-Flash FP4")
SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
FOURS, HUNDREDS = 21, 20  # layers that pool 4 and 128 tokens; two more only slide


def _without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in FLASH.items() if key not in keys}


@pytest.mark.parametrize("tokens", [1, 3, 4, 127, 128, 129, 32_768, 131_072, 524_288])
def test_a_window_in_every_layer_and_entries_for_all_tokens_are_counted(tokens: int, tmp_path: Path) -> None:
    shape = shape_of(FLASH, tmp_path)
    window = 43 * min(tokens, 128) * 512 * 2
    entries = FOURS * (tokens // 4) * (512 + 128) * 2 + HUNDREDS * (tokens // 128) * 512 * 2
    assert kv_cache_bytes(shape, tokens) == window + entries


def test_a_token_more_costs_6880_bytes_on_average(tmp_path: Path) -> None:
    """The full tier of an engine that runs this model: 1024 B by ratio and layer, 256 B by 4 for the index."""
    shape = shape_of(FLASH, tmp_path)
    more = kv_cache_bytes(shape, 524_288) - kv_cache_bytes(shape, 1024)
    assert more == (524_288 - 1024) * (FOURS * (1024 + 256) // 4 + HUNDREDS * 1024 // 128) == 523_264 * 6880


def test_tokens_that_make_no_entry_yet_have_room_of_their_own(tmp_path: Path) -> None:
    waiting = FOURS * 2 * 3 * 2 * (512 + 128) * 2 + HUNDREDS * 2 * 127 * 512 * 2
    overlap = FOURS * 4 * (512 + 128) * (2 + 4)
    assert state_bytes(shape_of(FLASH, tmp_path)) == waiting + overlap


def test_the_tiers_are_said_in_words(tmp_path: Path) -> None:
    note = next(note for note in shape_of(FLASH, tmp_path).assumptions if "compressed attention" in note)
    assert "a window of 128 tokens" in note
    assert "512 values for every 4 or 128 tokens" in note


def test_layer_types_and_older_rates_say_the_same_as_ratios() -> None:
    kinds = ["sliding_attention"] * 2 + [SPARSE, HEAVY] * 20 + [SPARSE]
    plain = anatomy_of(FLASH)[2]
    assert anatomy_of(_without("compress_ratios") | {"layer_types": kinds})[2] == plain
    _, facts, anatomy = anatomy_of(_without("compress_ratios") | {"layer_types": kinds, "compress_rate_csa": 8})
    assert anatomy.layers[2].kv is not None
    assert anatomy.layers[2].kv.pooled[0] == PooledShape(step=8, dim=512)
    assert "compress_rates is not in config.json; 128 taken for heavily_compressed_attention" in facts.assumptions


@pytest.mark.parametrize(
    "key", ["sliding_window", "head_dim", "index_head_dim", "index_n_heads", "hc_mult", "o_lora_rank", "q_lora_rank"]
)
def test_a_missing_fact_is_named_and_not_taken_from_defaults(key: str) -> None:
    with pytest.raises(CannotEstimateError, match=f"does not say {key}"):
        anatomy_of(_without(key))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"compress_ratios": [4] * 42}, "names 42 layers; the model has 43"),
        ({"compress_ratios": [8] * 43}, "says 8; 0, 4 and 128 are known"),
        ({"layer_types": ["full_attention"] * 43}, "names full_attention, which deepseek_v4 models do not have"),
        ({"compress_rates": {SPARSE: 0}}, "no number of tokens for compressed_sparse_attention"),
        ({"compress_rates": [4]}, "no number of tokens for"),
        ({"mlp_layer_types": ["dense"] * 43}, "names dense, which deepseek_v4 models do not have"),
        ({"o_groups": 7}, "o_groups 7 in config.json does not divide"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotEstimateError, match=words):
        anatomy_of(FLASH | changed)
