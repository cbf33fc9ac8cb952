"""Qwen 4: tables of word groups, whose sizes are primes, and the positions that one layer keeps for all."""

from typing import Any

import pytest
from transformers.models.qwen4_exp.modeling_qwen4_exp import _find_nth_prime_after

from engine.contract.errors import CannotEstimateError
from engine.contract.estimate import kv_layer_bytes
from engine.contract.families import anatomy_of
from engine.contract.families_qwen4 import primes

CONFIG: dict[str, Any] = {
    "model_type": "qwen4_exp_text", "num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10,
    "num_experts": 512, "vocab_size": 248320, "max_position_embeddings": 32768, "hc_count": 4, "hc_lowrank": 320,
    "ple_layer_ids": [1], "ple_conv_kernel_size": 4, "ngram_size": 3, "heads_per_ngram": 8,
    "ngram_vocab_size_base": 20_000_000, "make_ngram_vocab_size_divisible_by": 128, "indexer_n_heads": 8,
    "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048, "indexer_compress_ratio": 16,
}  # fmt: skip


@pytest.mark.parametrize("start", [2, 3, 50, 1000, 20_000_000, 2_147_480_000])
def test_the_sizes_of_tables_are_the_primes_that_the_modelling_code_takes(start: int) -> None:
    assert primes(start, 9) == tuple(_find_nth_prime_after(start - 1, number + 1) for number in range(9))


def test_a_table_of_word_groups_counts_its_rows() -> None:
    table = anatomy_of(CONFIG)[2].body.plain - anatomy_of(CONFIG | {"ple_layer_ids": []})[2].body.plain
    rows = -(-sum(primes(20_000_000, 16)) // 128) * 128
    wide = 4 * 2048
    assert table == rows * (2048 // 16) + 2048 * (wide + 2048) + 3 * wide + wide * 4
    assert rows > 320_000_000


def test_only_the_first_layer_with_an_index_keeps_positions() -> None:
    layers = anatomy_of(CONFIG)[2].layers
    assert [layer.index for layer in layers if layer.kv and layer.kv.index_positions] == [3]
    assert layers[3].kv is not None
    assert kv_layer_bytes(layers[3].kv, 100) == 100 * ((2 * 2 * 256 + 128) * 2 + 3 * 8)


def test_slow_prompts_are_said() -> None:
    assert any("read slowly" in note for note in anatomy_of(CONFIG)[1].assumptions)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"indexer_n_heads": None}, "does not say indexer_n_heads"),
        ({"indexer_kv_heads": 2}, "more than one indexer_kv_heads"),
        ({"ple_layer_ids": [4]}, "names layer 4, which has no linear attention"),
        ({"ple_layer_ids": [41]}, "names layer 41; the model has 40"),
        ({"ple_embed_dim": 1000}, "which does not divide it"),
        ({"ngram_vocab_size_base": 1 << 32}, "not believed"),
        ({"hc_lowrank": None}, "does not say hc_lowrank"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotEstimateError, match=words):
        anatomy_of(CONFIG | changed)
