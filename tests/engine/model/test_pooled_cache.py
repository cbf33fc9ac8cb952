"""Compressed attention: entries that stand for many tokens each, in buffers of fixed size."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4CSACache

from engine.banks.cpu_device import CpuDevice
from engine.contract.errors import PlanMismatchError
from engine.contract.estimate import kv_cache_bytes, kv_layer_bytes, state_bytes
from engine.contract.formats import WeightFormat
from engine.contract.shape import KvShape, PooledShape
from engine.model.dense import read_config
from engine.model.kv_cache import KvCache, check_layers
from engine.model.pooled_layers import PooledKvLayer
from tests.engine.model.conftest import Load
from tests.support import packed_weights as pack
from tests.support.packed_models import packed_model
from tests.support.reference import prefill, random_prompt, stock_logits
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import TinyModel, plan_for

STEP, DIM, WINDOW = 3, 2, 4
CONTEXT = 60


@pytest.fixture(scope="module")
def deepseek_v4(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return tiny_family("deepseek_v4", tmp_path_factory.mktemp("v4") / "deepseek_v4")


def _layer() -> PooledKvLayer:
    kv = KvShape(
        n_kv_heads=1,
        key_dim=DIM,
        value_dim=0,
        keys_are_values=True,
        window=WINDOW,
        pooled=(PooledShape(step=STEP, dim=DIM), PooledShape(step=STEP, dim=DIM, index=True)),
    )
    waiting, before = torch.zeros(1, STEP - 1, 2 * DIM), torch.zeros(1, STEP, DIM)
    buffers = [buffer.clone() for _ in kv.pooled for buffer in (waiting, waiting, before, before)]
    memory = torch.zeros(kv_layer_bytes(kv, CONTEXT, 4), dtype=torch.uint8)
    layer = PooledKvLayer(kv, CONTEXT, memory, torch.float32, buffers)
    assert layer.nbytes == memory.nbytes
    return layer


def _theirs() -> DeepseekV4CSACache:
    rates = {"compressed_sparse_attention": STEP, "heavily_compressed_attention": 5}
    return DeepseekV4CSACache(DeepseekV4Config(num_hidden_layers=2, sliding_window=WINDOW, compress_rates=rates))


def _same(ours: Any, theirs: Any) -> None:
    assert (ours is None) == (theirs is None)
    if ours is not None:
        assert torch.equal(ours, theirs)


@given(steps=st.lists(st.integers(1, 8), min_size=1, max_size=7))
def test_a_pool_hands_out_and_keeps_what_transformers_own_layer_does(steps: list[int]) -> None:
    ours, theirs = _layer(), _theirs()
    at = 0.0
    for new in steps:
        numbers = torch.arange(at, at + new)[None, :, None]
        at += new
        values, gates = numbers.expand(1, new, 2 * DIM), -numbers.expand(1, new, 2 * DIM)
        for name in ("compressor", "indexer"):
            got, want = (layer.store_compression_weights(name, values, gates) for layer in (ours, theirs))
            assert got[2] == want[2]
            _same(got[0], want[0])
            _same(got[1], want[1])
            if entries := got[0].shape[1] // STEP:
                chunk = got[0].view(1, entries, STEP, 2 * DIM)
                pairs = [layer.update_overlap_state(name, chunk, -chunk, DIM) for layer in (ours, theirs)]
                for mine, stock in zip(*pairs, strict=True):
                    _same(mine, stock)
            pooled = got[0].view(1, -1, STEP, 2 * DIM).sum(dim=2)[..., :DIM]
            _same(*(layer.update_compressor_states(name, pooled) for layer in (ours, theirs)))


def test_a_key_is_kept_once_and_read_as_a_value_too() -> None:
    layer = _layer()
    numbers = torch.arange(6.0).view(1, 1, 6, 1).expand(1, 1, 6, DIM)
    keys, values = layer.update(numbers, numbers)
    assert keys is values
    assert torch.equal(keys, numbers)


def test_a_pool_of_another_width_than_planned_is_refused() -> None:
    wide = torch.zeros(1, 2, 2 * DIM + 1)
    with pytest.raises(PlanMismatchError, match="The model pools"):
        _layer().store_compression_weights("compressor", wide, wide)


@pytest.mark.parametrize("context_tokens", [1, 2, 3, 5, 14, 15, 16, 48])
def test_a_cache_that_grows_in_steps_has_the_planned_bytes(context_tokens: int, deepseek_v4: TinyModel) -> None:
    device = CpuDevice()
    cache = KvCache(deepseek_v4.shape, context_tokens, device, torch.float32)
    window, key, index = 8, 8, 12  # tokens, values of a key and of an index entry
    by_hand = (
        4 * min(context_tokens, window) * key + 2 * (context_tokens // 3) * (key + index) + context_tokens // 5 * key
    )
    assert kv_cache_bytes(deepseek_v4.shape, context_tokens) == 4 * by_hand
    assert device.allocated["KV cache"] == 4 * by_hand
    assert device.allocated["state"] == state_bytes(deepseek_v4.shape)
    cache.close()
    assert device.allocated == {}


@pytest.mark.parametrize("chunk", [1, 2, 5, 8, 13, 40])
def test_prompts_are_exact_in_any_chunks_and_after_a_reset(chunk: int, deepseek_v4: TinyModel, load: Load) -> None:
    prompt = random_prompt(37)
    model = load(plan_for(deepseek_v4, "llll", prefill_chunk=chunk))
    want = stock_logits(deepseek_v4, [*prompt, 7])
    torch.testing.assert_close(prefill(model, prompt), want[-2], rtol=0, atol=1e-5)
    torch.testing.assert_close(model.decode(7), want[-1], rtol=0, atol=1e-5)
    model.reset()
    torch.testing.assert_close(prefill(model, prompt), want[-2], rtol=0, atol=1e-5)


def test_few_chosen_entries_are_the_same_in_chunks(tmp_path: Path, deepseek_v4: TinyModel, load: Load) -> None:
    sparse = tiny_family("deepseek_v4", tmp_path / "sparse", index_topk=2)
    prompt = random_prompt(30)
    want = stock_logits(sparse, prompt)[-1]
    model = load(plan_for(sparse, "llll", prefill_chunk=7))
    torch.testing.assert_close(prefill(model, prompt), want, rtol=0, atol=1e-5)
    assert (stock_logits(deepseek_v4, prompt)[-1] - want).abs().max() > 1e-3  # the choice does matter


def test_experts_in_4_bits_beside_weights_in_fp8_run_as_they_are_published(tmp_path: Path, load: Load) -> None:
    published = {"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128], "expert_dtype": "fp4"}
    dense = pack.fp8_blocks("scale", torch.float8_e8m0fnu)
    made = packed_model(tmp_path, "deepseek_v4", published, pack.mxfp4_in_int8, dense=dense)
    shape = made.packed.shape
    assert shape.expert_format is WeightFormat.MXFP4
    assert shape.dense_bytes == made.plain.shape.dense_bytes
    prompt = random_prompt(19)
    model = load(plan_for(made.packed, "pl", prefill_chunk=7))
    torch.testing.assert_close(prefill(model, prompt), stock_logits(made.plain, prompt)[-1], rtol=0, atol=1e-5)


def test_pools_that_the_plan_does_not_know_are_a_wrong_plan(deepseek_v4: TinyModel) -> None:
    config = read_config(deepseek_v4.folder)
    check_layers(config, deepseek_v4.shape)
    layers = list(deepseek_v4.shape.layers)
    layers[1] = layers[1].model_copy(update={"kv": layers[2].kv, "state": layers[2].state})
    with pytest.raises(PlanMismatchError, match="Layer 1 pools"):
        check_layers(config, deepseek_v4.shape.model_copy(update={"layers": tuple(layers)}))
