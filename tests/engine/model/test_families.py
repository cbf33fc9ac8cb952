"""The gate for an upgrade of transformers: its hooks are partly private, so every family is compared with itself."""

from pathlib import Path

import pytest
import torch

from tests.engine.model.conftest import Load
from tests.support.reference import prefill, random_prompt, stock_logits
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import plan_for

pytestmark = pytest.mark.slow
FAMILIES = [
    "afmoe",
    "aria_text",
    "cohere2_moe",
    "dots1",
    "ernie4_5_moe",
    "exaone_moe",
    "flex_olmo",
    "gemma4_text",
    "glm4_moe",
    "gpt_oss",
    "granitemoe",
    "granitemoeshared",
    "hunyuan_v1_moe",
    "hy_v3",
    "laguna",
    "mellum",
    "mimo_v2_flash",
    "minimax_m2",
    "mixtral",
    "olmoe",
    "phimoe",
    "qwen2_moe",
    "qwen3_moe",
    "solar_open",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_and_every_decoded_token_are_those_of_the_stock_model(family: str, tmp_path: Path, load: Load) -> None:
    checkpoint = tiny_family(family, tmp_path / family)
    tokens = random_prompt(23)
    want = stock_logits(checkpoint, tokens)
    n_layers = len(checkpoint.shape.moe_layers)
    model = load(plan_for(checkpoint, ("vplg" * n_layers)[:n_layers], prefill_chunk=7))
    got = [prefill(model, tokens[:15]), *(model.decode(token) for token in tokens[15:])]
    torch.testing.assert_close(torch.stack(got), want[14:], rtol=0, atol=1e-5)
    assert model.residency().ledger_settled == model.residency().ledger_asked
