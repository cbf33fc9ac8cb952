"""Family by family: what is estimated is allocated, to the byte, and the answers are those of the stock model.

This is the gate for an upgrade of transformers, whose hooks are partly private. `python -m tests.parity` prints it.
"""

from pathlib import Path

import pytest
import torch

from engine.contract.estimate import bank_bytes, kv_cache_bytes, state_bytes
from tests.engine.model.conftest import Load
from tests.support.parity import SPLITS, compare, differences
from tests.support.reference import prefill, random_prompt
from tests.support.tiny_families import TINY_FAMILIES, tiny_family
from tests.support.tiny_models import plan_for

MIXED = SPLITS[-1]


def test_the_table_is_long() -> None:
    assert len(TINY_FAMILIES) >= 78


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_estimated_equals_allocated_and_answers_equal_stock(family: str, tmp_path: Path) -> None:
    checkpoint = tiny_family(family, tmp_path / family)
    found = compare(checkpoint, MIXED)
    assert found.difference == ""
    assert found.max_difference <= 1e-5
    assert found.tokens_equal


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_on_the_cpu_in_bf16_each_line_is_what_the_arithmetic_says(family: str, tmp_path: Path, load: Load) -> None:
    checkpoint = tiny_family(family, tmp_path / family, torch.bfloat16)
    shape = checkpoint.shape
    model = load(plan_for(checkpoint, "l" * len(shape.moe_layers), context_tokens=40))
    assert differences(model.residency()) == ""
    prefill(model, random_prompt(9))  # states refuse another type than planned
    settled = {line.what: line.bytes for line in model.residency().ledger_settled}
    assert settled["weights"] == shape.dense_bytes
    assert settled.get("KV cache", 0) == kv_cache_bytes(shape, 40)
    assert settled.get("state", 0) == state_bytes(shape)
    assert settled["locked layers"] == len(shape.moe_layers) * bank_bytes(shape.experts, shape.expert_format)


@pytest.mark.slow
@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_each_tier_alone_answers_like_the_stock_model(family: str, tmp_path: Path) -> None:
    checkpoint = tiny_family(family, tmp_path / family)
    found = {split: compare(checkpoint, split) for split in SPLITS if split != MIXED}
    assert {split: one for split, one in found.items() if not one.good} == {}
