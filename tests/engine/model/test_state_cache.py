"""Buffers of layers that keep a state instead of tokens, or both."""

from pathlib import Path

import pytest
import torch

from engine.banks.cpu_device import CpuDevice
from engine.contract.errors import PlanMismatchError
from engine.contract.estimate import kv_cache_bytes, state_bytes
from engine.contract.shape import KvShape, StateShape, StateTensor
from engine.model.dense import read_config
from engine.model.kv_cache import KvCache, check_layers
from engine.model.kv_layers import IndexedKvLayer
from engine.model.state_layers import KvStateLayer, StateLayer
from tests.engine.model.conftest import Load
from tests.support.reference import prefill, random_prompt, stock_logits
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import TinyModel, plan_for

CONVOLUTION = StateTensor(kind="convolution", sizes=(3, 4), dtype="model")
RECURRENT = StateTensor(kind="recurrent", sizes=(2, 5), dtype="fp32")


def _layer() -> StateLayer:
    return StateLayer(StateShape(tensors=(CONVOLUTION, RECURRENT)), [torch.zeros(1, 3, 4), torch.zeros(1, 2, 5)])


def _kept(held: dict[int, torch.Tensor | None]) -> torch.Tensor:
    buffer = held[0]
    assert buffer is not None
    return buffer


@pytest.fixture(scope="module")
def jamba(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return tiny_family("jamba", tmp_path_factory.mktemp("jamba") / "jamba")


@pytest.fixture(scope="module")
def zaya(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return tiny_family("zaya", tmp_path_factory.mktemp("zaya") / "zaya")


def test_a_convolution_keeps_its_newest_inputs_in_the_buffer_it_was_given() -> None:
    layer = _layer()
    buffer = _kept(layer.conv_states)
    first = torch.arange(18.0).view(1, 3, 6)
    assert torch.equal(layer.update_conv_state(first, conv_kernel_size=4), first)
    assert layer.conv_states[0] is buffer
    assert torch.equal(buffer, first[..., -4:])
    seen = layer.update_conv_state(first[..., :2], conv_kernel_size=4)
    assert torch.equal(seen, torch.cat([first[..., -4:], first[..., :2]], dim=-1))


def test_a_short_first_prompt_is_filled_up_with_zeros() -> None:
    layer = _layer()
    layer.update_conv_state(torch.ones(1, 3, 2), conv_kernel_size=4)
    assert _kept(layer.conv_states)[0, 0].tolist() == [0, 0, 1, 1]


def test_reset_leaves_nothing_of_the_old_sequence() -> None:
    layer = _layer()
    layer.update_conv_state(torch.ones(1, 3, 9), conv_kernel_size=4)
    layer.update_recurrent_state(torch.ones(1, 2, 5))
    layer.reset()
    assert _kept(layer.conv_states).abs().sum() == _kept(layer.recurrent_states).abs().sum() == 0
    assert not layer.has_previous_state[0]


@pytest.mark.parametrize(
    ("state", "number"),
    [(torch.ones(1, 2, 6), 0), (torch.ones(1, 2, 5, dtype=torch.bfloat16), 0), (torch.ones(1, 2, 5), 1)],
)
def test_a_state_that_the_plan_does_not_know_is_refused(state: torch.Tensor, number: int) -> None:
    with pytest.raises(PlanMismatchError, match="The model keeps a state"):
        _layer().update_recurrent_state(state, number)


def test_an_index_keeps_its_keys_behind_those_of_attention() -> None:
    kv = KvShape(n_kv_heads=1, key_dim=4, value_dim=2, index_dim=3)
    layer = IndexedKvLayer(kv, 10, torch.zeros(10 * 9 * 4, dtype=torch.uint8), torch.float32)
    assert layer.nbytes == 10 * 9 * 4
    index = torch.arange(21.0).view(1, 7, 3)
    assert torch.equal(layer.update_indexer(index[:, :5]), index[:, :5])
    assert torch.equal(layer.update_indexer(index[:, 5:]), index)
    keys, _ = layer.update(torch.ones(1, 1, 7, 4), torch.ones(1, 1, 7, 2))
    assert torch.equal(layer.update_indexer(index[:, :1]), torch.cat([index, index[:, :1]], dim=1))
    assert (keys == 1).all()
    layer.reset()
    assert layer.update_indexer(index).shape == (1, 7, 3)


def test_a_layer_may_keep_tokens_and_a_state(zaya: TinyModel) -> None:
    device = CpuDevice()
    cache = KvCache(zaya.shape, 24, device, torch.float32)
    assert all(isinstance(layer, KvStateLayer) for layer in cache.layers)
    assert device.allocated == {"KV cache": kv_cache_bytes(zaya.shape, 24), "state": state_bytes(zaya.shape)}
    cache.close()
    assert device.allocated == {}


def test_kinds_of_layers_that_the_plan_does_not_know_are_a_wrong_plan(jamba: TinyModel) -> None:
    config = read_config(jamba.folder)
    check_layers(config, jamba.shape)
    swapped = tuple(
        layer.model_copy(update={"kv": other.kv, "state": other.state})
        for layer, other in zip(jamba.shape.layers, reversed(jamba.shape.layers), strict=True)
    )
    with pytest.raises(PlanMismatchError, match="Layer 0 keeps a state; the plan counts keys and values"):
        check_layers(config, jamba.shape.model_copy(update={"layers": swapped}))


def test_a_scan_that_begins_at_zero_goes_on_token_by_token(jamba: TinyModel, load: Load) -> None:
    assert not jamba.shape.resumes_in_chunks
    assert any("token by token" in note for note in jamba.shape.assumptions)
    model = load(plan_for(jamba, "l" * len(jamba.shape.moe_layers), prefill_chunk=7))
    done: list[int] = []
    prompt = random_prompt(12)
    logits = model.prefill(prompt, on_progress=done.append, cancelled=lambda: False)
    assert done == [7, 8, 9, 10, 11, 12]
    torch.testing.assert_close(logits, stock_logits(jamba, prompt)[-1], rtol=0, atol=1e-5)


def test_a_sparse_index_chooses_the_same_tokens_in_chunks(tmp_path: Path, load: Load) -> None:
    checkpoint = tiny_family("deepseek_v32", tmp_path / "sparse", index_topk=5)
    dense = tiny_family("deepseek_v32", tmp_path / "dense")
    model = load(plan_for(checkpoint, "l" * len(checkpoint.shape.moe_layers), prefill_chunk=7))
    prompt = random_prompt(20)
    want = stock_logits(checkpoint, prompt)[-1]
    torch.testing.assert_close(prefill(model, prompt), want, rtol=0, atol=1e-5)
    assert (stock_logits(dense, prompt)[-1] - want).abs().max() > 1e-3  # the choice does matter
