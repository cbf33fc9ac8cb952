"""The type of keys and values: counted to the byte, and refused where the engine cannot keep them so."""

from pathlib import Path

import pytest

from engine.contract.errors import UsageError
from engine.contract.estimate import (
    ContextBytes,
    Costs,
    Split,
    kv_cache_bytes,
    kv_traffic_bytes,
    ledger,
    snapshot_bytes,
    state_bytes,
    unpacked_kv_bytes,
)
from engine.contract.estimate_work import workspace_bytes
from engine.contract.kv_types import kept_in, why_not_fp8
from engine.contract.plan import Pool, Tier
from engine.contract.shape import ModelShape
from tests.support.model_configs import DEEPSEEK_V3, GPT_OSS_120B, QWEN3_30B, QWEN3_NEXT_80B, Config, shape_of


def test_fp8_takes_a_byte_a_value_and_two_scales_a_token_and_head(tmp_path: Path) -> None:
    shape = kept_in(shape_of(QWEN3_30B, tmp_path), "fp8")
    assert shape.kv_dtype == "fp8"
    assert kv_cache_bytes(shape, 32_768) == 32_768 * 48 * 4 * (128 + 128 + 2 + 2)
    assert unpacked_kv_bytes(shape, 32_768) == 32_768 * 4 * 256 * 2, "one layer in bf16"


def test_a_token_reads_what_is_kept_and_fp8_also_what_it_becomes(tmp_path: Path) -> None:
    shape = shape_of(QWEN3_30B, tmp_path)
    own = kv_cache_bytes(shape, 4096)
    assert kv_traffic_bytes(shape, 4096) == own
    fp8 = kept_in(shape, "fp8")
    assert kv_traffic_bytes(fp8, 4096) == kv_cache_bytes(fp8, 4096) + 2 * own


def test_a_window_in_fp8_is_no_longer_than_before(tmp_path: Path) -> None:
    shape = kept_in(shape_of(GPT_OSS_120B, tmp_path), "fp8")
    token = 8 * (64 + 64 + 4)
    assert kv_cache_bytes(shape, 1000) == 18 * token * (1000 + 128)
    assert snapshot_bytes(shape, 1000) == 18 * token * 128


@pytest.mark.parametrize("config", [QWEN3_30B, QWEN3_NEXT_80B, GPT_OSS_120B])
def test_everything_that_fp8_takes_is_in_the_ledger(config: Config, tmp_path: Path) -> None:
    shape = kept_in(shape_of(config, tmp_path), "fp8")
    tiers = (Tier.VRAM,) * len(shape.moe_layers)
    split = Split(context_tokens=4096, prefill_chunk=512, expert_slots=0, tiers=tiers, on_gpu=True)
    lines = {line.what: line.bytes for line in ledger(shape, split, Costs()) if line.pool is Pool.VRAM}
    assert lines["KV cache"] == kv_cache_bytes(shape, 4096)
    assert lines["unpacked KV"] == unpacked_kv_bytes(shape, 4096) > 0
    assert ContextBytes(shape, 512).at(4096) == (
        kv_cache_bytes(shape, 4096)
        + unpacked_kv_bytes(shape, 4096)
        + state_bytes(shape)
        + workspace_bytes(shape, 512, 4096)
    )


def test_the_models_own_type_changes_nothing_and_leads_back(tmp_path: Path) -> None:
    shape = shape_of(QWEN3_30B, tmp_path)
    assert shape.kv_dtype == "bf16"
    assert kept_in(shape, None) is kept_in(shape, "bf16") is shape
    assert kept_in(kept_in(shape, "fp8"), None) == shape
    assert unpacked_kv_bytes(shape, 4096) == 0


def test_a_type_that_the_model_does_not_compute_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="kept in bf16; fp32 was asked for"):
        kept_in(shape_of(QWEN3_30B, tmp_path), "fp32")


def test_latents_are_not_kept_in_fp8(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be kept in fp8: it keeps latents") as why:
        kept_in(shape_of(DEEPSEEK_V3, tmp_path), "fp8")
    assert why.value.problem.fix == "Choose bf16, or nothing."


def _with(shape: ModelShape, **kv: object) -> ModelShape:
    layers = [
        layer.model_copy(update={"kv": None if layer.kv is None else layer.kv.model_copy(update=kv)})
        for layer in shape.layers
    ]
    return shape.model_copy(update={"layers": tuple(layers)})


def test_each_kind_of_cache_that_cannot_be_packed_has_its_reason(tmp_path: Path) -> None:
    shape = shape_of(QWEN3_30B, tmp_path)
    assert why_not_fp8(shape) is None
    assert "chooses tokens" in (why_not_fp8(_with(shape, index_dim=64)) or "")
    assert "keys and values at once" in (why_not_fp8(_with(shape, keys_are_values=True)) or "")
    without = shape.model_copy(update={"layers": tuple(one.model_copy(update={"kv": None}) for one in shape.layers)})
    assert "no layer" in (why_not_fp8(without) or "")
    shared = (*shape.layers[:-1], shape.layers[-1].model_copy(update={"kv": None}))
    gemma = shape.model_copy(update={"family": "gemma4_text", "layers": shared})
    assert "read the same keys" in (why_not_fp8(gemma) or "")
