"""Attention that chooses its tokens: blocks, pools and indices of several layers are chosen the same in chunks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.contract.checkpoint import read_shape
from engine.contract.estimate import kv_layer_bytes
from engine.contract.shape import KvShape
from engine.model.index_layers import BlockIndexedKvLayer, PositionedKvLayer
from tests.engine.model.conftest import Load
from tests.support.parity import differences
from tests.support.reference import prefill, random_prompt, stock_logits
from tests.support.tiny_families import tiny_family
from tests.support.tiny_models import TinyModel, plan_for

# what makes the index of a family choose few of the tokens of a short prompt
_FEW: dict[str, dict[str, Any]] = {
    "glm5_next": {"index_topk": 8},
    "hy_v4": {"index_topk": 5},
    "hy_v4_vl": {"index_topk": 5},
    "minimax_m3_vl_text": {"index_topk_blocks": 2},
    "qwen4_exp_text": {"indexer_budget": 8},
}


@pytest.mark.parametrize("family", sorted(_FEW))
def test_few_chosen_tokens_are_the_same_in_chunks(family: str, tmp_path: Path, load: Load) -> None:
    sparse = tiny_family(family, tmp_path / "sparse", **_FEW[family])
    dense = tiny_family(family, tmp_path / "dense")
    prompt = random_prompt(30)
    want = stock_logits(sparse, [*prompt, 7])
    model = load(plan_for(sparse, "l" * len(sparse.shape.moe_layers), prefill_chunk=7))
    torch.testing.assert_close(prefill(model, prompt), want[-2], rtol=0, atol=1e-5)
    torch.testing.assert_close(model.decode(7), want[-1], rtol=0, atol=1e-5)
    assert (stock_logits(dense, prompt)[-1] - want[-2]).abs().max() > 1e-3  # the choice does matter


def test_numbers_of_the_hash_need_not_be_in_the_files(tmp_path: Path, load: Load) -> None:
    checkpoint = tiny_family("qwen4_exp_text", tmp_path / "qwen4")
    prompt = random_prompt(12)
    want = stock_logits(checkpoint, prompt)[-1]
    file = checkpoint.folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(file).items() if tensor.is_floating_point()}
    save_file(kept, file, metadata={"format": "pt"})
    without = TinyModel(checkpoint.folder, read_shape(checkpoint.folder))
    assert without.shape.dense_bytes == checkpoint.shape.dense_bytes
    model = load(plan_for(without, "l" * len(without.shape.moe_layers)))
    assert differences(model.residency()) == ""
    torch.testing.assert_close(prefill(model, prompt), want, rtol=0, atol=1e-5)


def test_keys_of_blocks_are_kept_under_their_own_name() -> None:
    kv = KvShape(n_kv_heads=1, key_dim=2, value_dim=2, index_dim=3, index_blocks=True)
    layer = BlockIndexedKvLayer(kv, 9, torch.zeros(kv_layer_bytes(kv, 9, 4), dtype=torch.uint8), torch.float32)
    keys = torch.arange(12.0).view(1, 1, 4, 3)
    assert torch.equal(layer.update_index(keys), keys)
    assert torch.equal(layer.update_index(keys[:, :, :1]), torch.cat([keys, keys[:, :, :1]], dim=2))


def test_positions_of_all_tokens_have_a_buffer_of_their_own() -> None:
    kv = KvShape(n_kv_heads=1, key_dim=2, value_dim=1, index_dim=2, index_positions=3)
    memory = torch.zeros(kv_layer_bytes(kv, 7, 2), dtype=torch.uint8)
    assert memory.nbytes == 7 * (2 * 5 + 3 * 8)
    layer = PositionedKvLayer(kv, 7, memory, torch.bfloat16)
    assert layer.nbytes == memory.nbytes
    assert layer.indexer_position_ids is None
    first = torch.arange(4).expand(3, 1, 4)
    layer.indexer_position_ids = first
    layer.indexer_position_ids = torch.cat([layer.indexer_position_ids, first[..., :2] + 4], dim=-1)
    assert layer.indexer_position_ids.tolist() == [[list(range(6))]] * 3
    layer.seek(0, 3)
    assert layer.indexer_position_ids.tolist() == [[[0, 1, 2]]] * 3
    layer.reset()
    assert layer.indexer_position_ids is None
