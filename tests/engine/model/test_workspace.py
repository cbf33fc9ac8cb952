"""The workspace of the plan is enough for what one prefill step really holds at a time, layer kinds of all sorts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from engine.contract.checkpoint import read_shape
from engine.contract.estimate import kv_cache_bytes, state_bytes
from engine.contract.estimate_work import workspace_bytes
from engine.model.dense import model_class
from tests.support.live_memory import LiveMemory
from tests.support.reference import random_prompt
from tests.support.tiny_families import tiny_config

TOKENS = 256
FAMILIES = [
    "bailing_hybrid", "dbrx", "deepseek_v3", "deepseek_v4", "dots3_note_text", "ernie4_5_vl_moe", "glm5_next",
    "glm_moe_dsa", "gpt_oss", "granitemoehybrid", "hy_v4", "inkling2_loop_text", "inkling2_text", "inkling_text",
    "jamba", "jetmoe", "kimi_linear", "lara_mini", "lfm2_moe", "longcat_flash", "minimax", "minimax_m3_vl_text",
    "mistral_large4", "mixtral", "nemotron_h", "qwen3_5_moe_text", "qwen3_next", "qwen4_exp_text", "step3p7", "zaya",
]  # fmt: skip


def _no_experts(module: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(hidden)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_layer_needs_more_than_the_planned_workspace(family: str, tmp_path: Path) -> None:
    config = tiny_config(family)
    config.dtype = torch.float32
    config.save_pretrained(tmp_path)
    shape = read_shape(tmp_path)
    ALL_EXPERTS_FUNCTIONS.register("nothing", _no_experts)
    model = model_class(config)._from_config(config, dtype=torch.float32).eval()
    model.set_experts_implementation("nothing")
    with torch.inference_mode(), LiveMemory() as memory:
        answer = model(torch.tensor([random_prompt(TOKENS)]), use_cache=True, logits_to_keep=1)
    assert answer.logits.shape[1] == 1
    kept = kv_cache_bytes(shape, TOKENS) + state_bytes(shape)
    planned = workspace_bytes(shape, TOKENS, TOKENS)
    assert memory.peak_bytes - kept <= planned
    assert planned < 5 * (memory.peak_bytes - kept)  # a bound, not a guess
